// Sends requests and awaits answers: node requests.js HOST PORT ADDRESS COUNT; prints the answers as JSON.
'use strict';
const container = require('rhea');
const [host, port, address, count] = process.argv.slice(2);

const answers = [];
let requests;
let replyTo;
let sent = 0;
function go() {
    while (replyTo && requests.sendable() && sent < Number(count)) {
        requests.send({ reply_to: replyTo, correlation_id: sent, body: `request ${sent}` });
        sent += 1;
    }
}
container.on('connection_open', (context) => {
    requests = context.connection.open_sender(address);
    context.connection.open_receiver({ source: { dynamic: true }, credit_window: 50 });
});
container.on('receiver_open', (context) => { replyTo = context.receiver.source.address; go(); });
container.on('sendable', go);
container.on('message', (context) => {
    answers[context.message.correlation_id] = context.message.body;
    if (answers.filter((answer) => answer !== undefined).length === Number(count)) {
        console.log(JSON.stringify(answers));
        context.connection.close();
    }
});
for (const trouble of ['rejected', 'released', 'modified', 'disconnected', 'sender_error', 'receiver_error']) {
    container.on(trouble, (context) => { console.error(trouble, context.error); process.exit(1); });
}
container.on('connection_close', () => process.exit(0));
container.connect({ host, port: Number(port), reconnect: false, username: 'anonymous' });
