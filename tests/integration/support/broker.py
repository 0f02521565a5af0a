"""A broker that this project did not write: Apache ActiveMQ Artemis, from Maven Central.

It is a product that people do put behind routers; it speaks AMQP 1.0 with queues, credit, drain and outcomes, keeps
messages through a restart, and needs Java only.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from tests.integration.support.forks import end_with_the_tests
from tests.integration.support.ports import free_port
from tests.integration.support.routers import eventually

VERSION = "2.31.2"
ARTIFACT = f"org.apache.activemq:apache-artemis:{VERSION}:zip:bin"
PACKAGES = "install default-jre-headless and maven"
SET_UP_SECONDS = 300
START_SECONDS = 60.0
STOP_SECONDS = 20.0

BROKER_XML = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <journal-datasync>false</journal-datasync>
    <journal-min-files>2</journal-min-files>
    <journal-file-size>1M</journal-file-size>
    <bindings-directory>{data}/bindings</bindings-directory>
    <journal-directory>{data}/journal</journal-directory>
    <large-messages-directory>{data}/large</large-messages-directory>
    <paging-directory>{data}/paging</paging-directory>
    {security}
    <max-disk-usage>-1</max-disk-usage>
    <acceptors><acceptor name="amqp">tcp://{host}:{port}?protocols=AMQP</acceptor></acceptors>
    <address-settings>
      <address-setting match="#">
        <auto-create-queues>false</auto-create-queues>
        <auto-create-addresses>false</auto-create-addresses>
        <redelivery-delay>0</redelivery-delay>
        <max-delivery-attempts>-1</max-delivery-attempts>
      </address-setting>
    </address-settings>
    <addresses>{addresses}</addresses>
  </core>
</configuration>
"""
NO_SECURITY_XML = "<security-enabled>false</security-enabled>"
SECURITY_XML = """\
<security-enabled>true</security-enabled>
    <security-invalidation-interval>0</security-invalidation-interval>
    <authentication-cache-size>0</authentication-cache-size>
    <security-settings><security-setting match="#">{permissions}</security-setting></security-settings>
"""
PERMISSION_XML = '<permission type="{}" roles="app"/>'
PERMISSIONS = ("send", "consume", "browse", "createNonDurableQueue", "createDurableQueue", "createAddress")
LOGIN_CONFIG = """\
users {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
    reload=true
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
};
"""
ADDRESS_XML = '<address name="{0}"><anycast><queue name="{0}"/></anycast></address>'
TOPIC_XML = '<address name="{0}"><multicast/></address>'
BOOTSTRAP_XML = """\
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="users"/>
  <server configuration="file:{folder}/etc/broker.xml"/>
</broker>
"""
MANAGEMENT_XML = '<management-context xmlns="http://activemq.apache.org/schema"/>\n'
LOG_PROPERTIES = """\
rootLogger = INFO, console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %level %m%n
"""


def artemis_home() -> Path:
    """Artemis itself, fetched into the user's cache the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus" / "artemis"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"apache-artemis-{VERSION}"
    for program in ("java", "mvn"):
        assert shutil.which(program), f"{program} is needed for the tests with a broker: {PACKAGES}"
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "NOTICE").exists():
            plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
            subprocess.run(
                ["mvn", "-q", "-B", f"{plugin}:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={cache}"],
                check=True,
                timeout=SET_UP_SECONDS,
                stdin=subprocess.DEVNULL,
            )
            package = cache / f"apache-artemis-{VERSION}-bin.zip"
            with zipfile.ZipFile(package) as archive:
                archive.extractall(cache)
            package.unlink()
    return home


def configuration(
    name: str,
    folder: PurePath,
    endpoint: tuple[str, int],
    queues: Iterable[str],
    users: Mapping[str, str],
    topics: Iterable[str] = (),
) -> dict[str, str]:
    """What goes into `folder`/etc of a broker that keeps its data in `folder`/data: texts by name of file.

    With `users`, by name with their passwords, nobody else is let in."""
    host, port = endpoint
    permissions = "".join(map(PERMISSION_XML.format, PERMISSIONS))
    addresses = [*map(ADDRESS_XML.format, queues), *map(TOPIC_XML.format, topics)]
    return {
        "broker.xml": BROKER_XML.format(
            name=name,
            data=folder / "data",
            host=host,
            port=port,
            addresses="".join(addresses),
            security=SECURITY_XML.format(permissions=permissions) if users else NO_SECURITY_XML,
        ),
        "bootstrap.xml": BOOTSTRAP_XML.format(folder=folder),
        "management.xml": MANAGEMENT_XML,
        "log4j2.properties": LOG_PROPERTIES,
        "login.config": LOGIN_CONFIG,
        **users_files(users),
    }


def users_files(users: Mapping[str, str]) -> dict[str, str]:
    """Those of the files of `configuration` that may change while the broker runs."""
    return {
        "users.properties": "".join(f"{user}={word}\n" for user, word in users.items()),
        "roles.properties": f"app={','.join(users)}\n",
    }


def command(home: PurePath, folder: PurePath) -> list[str]:
    """The command of a broker with its `configuration` in `folder`, and Artemis in `home`."""
    etc = folder / "etc"
    return [
        "java",
        *("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        f"-Dartemis.home={home}",
        f"-Dartemis.instance={folder}",
        f"-Dartemis.instance.etc={etc}",
        f"-Ddata.dir={folder / 'data'}",
        f"-Djava.security.auth.login.config={etc / 'login.config'}",
        *("-cp", str(home / "lib" / "artemis-boot.jar"), "org.apache.activemq.artemis.boot.Artemis", "run"),
    ]


class Broker:
    """One broker process; it keeps its port and its messages when it is started again."""

    def __init__(self, folder: Path, name: str, *queues: str, topics: Iterable[str] = ()) -> None:
        self.name = name
        self.port = free_port()
        self.queues = list(queues)
        self.topics = list(topics)
        self.users: dict[str, str] = {}
        """With their passwords; nobody is asked for one while there is none. See `write_users`."""
        self._folder = folder / name
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Everything it has said."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def write_users(self) -> None:
        """Lets a running broker know of changed `users`."""
        for name, text in users_files(self.users).items():
            (self._folder / "etc" / name).write_text(text)

    def start(self) -> Broker:
        """Start the process and wait until it accepts connections."""
        home = artemis_home()
        etc = self._folder / "etc"
        etc.mkdir(parents=True, exist_ok=True)
        endpoint = ("127.0.0.1", self.port)
        texts = configuration(self.name, self._folder, endpoint, self.queues, self.users, self.topics)
        for name, text in texts.items():
            (etc / name).write_text(text)
        said = len(self.log)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command(home, self._folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_the_tests,  # noqa: PLW1509  # a system call
            )
        eventually(lambda: self._has_started(said), f"broker {self.name} is up", START_SECONDS)
        return self

    def _has_started(self, said: int) -> bool:
        assert self._process is not None
        status = self._process.poll()
        assert status is None, f"broker {self.name} ended with status {status}:\n{self.log[-4000:]}"
        return "AMQ221007" in self.log[said:]  # "Server is now live"

    def stop(self) -> None:
        """End the process as an operator would."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
        self._process = None

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        self._process = None
