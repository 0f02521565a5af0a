// Reads from a source with a selector, as long as there is something: node selector.js HOST PORT ADDRESS SELECTOR COUNT
// [NAME]; with a name as a durable subscription. Prints the bodies as JSON.
'use strict';
const rhea = require('rhea');
const [host, port, address, selector, count, name] = process.argv.slice(2);

const bodies = [];
const container = rhea.create_container({ id: 'rhea-reader' });
container.on('connection_open', (context) => {
    const source = { address, filter: rhea.filter.selector(selector) };
    if (name) Object.assign(source, { durable: 2, expiry_policy: 'never' });
    context.connection.open_receiver({ name, source, credit_window: 10 });
});
container.on('receiver_open', (context) => console.log(`ready ${Boolean(context.receiver.remote.attach.source)}`));
container.on('message', (context) => {
    bodies.push(context.message.body);
    if (bodies.length < Number(count)) return;
    console.log(JSON.stringify(bodies));
    context.connection.close();
});
for (const trouble of ['disconnected', 'receiver_error']) {
    container.on(trouble, (context) => { console.error(trouble, context.receiver && context.receiver.error); process.exit(1); });
}
container.on('connection_close', () => process.exit(0));
container.connect({ host, port: Number(port), reconnect: false, username: 'anonymous' });
