// Answers requests: node echo_server.js HOST PORT ADDRESS COUNT; prints "ready" once it can be reached.
'use strict';
const container = require('rhea');
const [host, port, address, count] = process.argv.slice(2);

let answered = 0;
let answers;
container.on('connection_open', (context) => {
    answers = context.connection.open_sender({ target: {} });
    context.connection.open_receiver({ source: address, credit_window: 100, autoaccept: true });
});
container.on('receiver_open', () => console.log('ready'));
container.on('message', (context) => {
    const request = context.message;
    answers.send({ to: request.reply_to, correlation_id: request.correlation_id, body: request.body.toUpperCase() });
});
container.on('accepted', (context) => {
    answered += 1;
    if (answered === Number(count)) context.connection.close();
});
for (const trouble of ['rejected', 'released', 'modified', 'disconnected', 'sender_error', 'receiver_error']) {
    container.on(trouble, (context) => { console.error(trouble, context.error); process.exit(1); });
}
container.on('connection_close', () => process.exit(0));
container.connect({ host, port: Number(port), reconnect: false, username: 'anonymous' });
