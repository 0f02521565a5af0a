// Settlement in two phases, at both ends: node second.js SENDING-HOST PORT RECEIVING-PORT ADDRESS; prints JSON.
'use strict';
const rhea = require('rhea');
const [host, sending, receiving, address] = process.argv.slice(2);
const order = [];

const consumer = rhea.create_container();
consumer.on('connection_open', (context) => context.connection.open_receiver({
    source: address, autoaccept: false, autosettle: false, rcv_settle_mode: 1,
}));
consumer.on('message', (context) => {
    order.push('message');
    context.delivery.update(false, rhea.message.accepted().described());
});
consumer.on('settled', (context) => {
    order.push('receiver hears of the settlement');
    context.delivery.update(true);
    console.log(JSON.stringify(order));
    process.exit(0);
});

const producer = rhea.create_container();
producer.on('connection_open', (context) => {
    context.connection.open_sender({ target: address, autosettle: false, rcv_settle_mode: 1 });
});
producer.once('sendable', (context) => context.sender.send({ body: 'x' }));
producer.on('accepted', (context) => {
    order.push(`sender hears of the outcome, ${context.delivery.remote_settled ? 'settled' : 'unsettled'}`);
    context.delivery.update(true);
});
consumer.on('receiver_open', () => {
    producer.connect({ host, port: Number(sending), reconnect: false, username: 'anonymous' });
});
consumer.connect({ host, port: Number(receiving), reconnect: false, username: 'anonymous' });
