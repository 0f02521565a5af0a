// What a user may and may not do: node policy.js HOST PORT USER PASSWORD; prints JSON.
'use strict';
const rhea = require('rhea');
const [host, port, username, password] = process.argv.slice(2);

const heard = {};
function tell(name, error) {
    heard[name] = error && error.condition ? { condition: error.condition, description: error.description } : error;
    if (Object.keys(heard).length === 5) {
        console.log(JSON.stringify(heard));
        process.exit(0);
    }
}

const options = { host, port: Number(port), reconnect: false, username, password };
const client = rhea.create_container();
client.on('connection_open', (context) => {
    const connection = context.connection;
    connection.open_sender('secret').on('sender_error', (event) => tell('sender', event.sender.error));
    connection.open_receiver('secret').on('receiver_error', (event) => tell('receiver', event.receiver.error));
    connection.open_receiver({ source: { dynamic: true } })
        .on('receiver_error', (event) => tell('dynamic', event.receiver.error));
    const sender = connection.open_sender('orders');
    sender.once('sendable', () => sender.send({ body: 'three' }));
    sender.on('accepted', () => tell('allowed', 'accepted'));
});
client.connect(options);

const stranger = rhea.create_container();
stranger.on('connection_error', (context) => tell('stranger', context.connection.error));
stranger.connect({ ...options, username: 'mallory@isthmus' });
