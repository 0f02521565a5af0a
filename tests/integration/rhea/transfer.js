// Sends COUNT messages of SIZE bytes and receives them again, checking every byte and the order:
// node transfer.js HOST PORT ADDRESS COUNT SIZE [CA CERT KEY]; with the last three over TLS. Prints JSON.
'use strict';
const fs = require('fs');
const rhea = require('rhea');
const [host, port, address, count, size, ca, cert, key] = process.argv.slice(2);

const options = { host, port: Number(port), reconnect: false, username: 'anonymous' };
if (ca) {
    Object.assign(options, { transport: 'tls', ca: [fs.readFileSync(ca)], servername: host, enable_sasl_external: true });
    Object.assign(options, { cert: fs.readFileSync(cert), key: fs.readFileSync(key) });
    delete options.username;
}
function body(number) {
    return Buffer.alloc(Number(size), number % 251);
}

const container = rhea.create_container();
let sender;
let sent = 0;
let accepted = 0;
let received = 0;
container.on('connection_open', (context) => {
    sender = context.connection.open_sender(address);
    context.connection.open_receiver({ source: address, credit_window: 100 });
});
container.on('sendable', () => {
    while (sender.sendable() && sent < Number(count)) {
        sender.send({ message_id: sent, body: rhea.message.data_section(body(sent)) });
        sent += 1;
    }
});
container.on('message', (context) => {
    const { message } = context;
    if (message.message_id !== received || !body(received).equals(message.body.content)) {
        console.error(`message ${message.message_id} where ${received} was expected, or with other contents`);
        process.exit(1);
    }
    received += 1;
    done();
});
container.on('accepted', () => { accepted += 1; done(); });
for (const trouble of ['rejected', 'released', 'modified', 'disconnected', 'sender_error', 'receiver_error']) {
    container.on(trouble, (context) => { console.error(trouble, context.error); process.exit(1); });
}
function done() {
    if (received < Number(count) || accepted < Number(count)) return;
    console.log(JSON.stringify({ received, accepted }));
    process.exit(0);
}
container.connect(options);
