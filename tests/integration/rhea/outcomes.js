// One delivery for each outcome and what the sender hears of it: node outcomes.js HOST PORT ADDRESS; prints JSON.
'use strict';
const rhea = require('rhea');
const [host, port, address] = process.argv.slice(2);

const heard = {};
const names = {};
const wanted = ['accept', 'reject', 'release', 'modify', 'presettled'];

const consumer = rhea.create_container();
consumer.on('connection_open', (context) => context.connection.open_receiver({ source: address, autoaccept: false }));
consumer.on('message', (context) => {
    const { delivery, message } = context;
    switch (message.body) {
    case 'accept': delivery.accept(); break;
    case 'reject': delivery.reject({ condition: 'acme:no', description: 'not this one', info: { code: 7 } }); break;
    case 'release': delivery.release(); break;
    case 'modify': delivery.modified({ delivery_failed: true, undeliverable_here: true }); break;
    default: heard.presettled = { settled: delivery.remote_settled }; done(); break;
    }
});

const producer = rhea.create_container();
let sender;
producer.on('connection_open', (context) => { sender = context.connection.open_sender(address); });
// One after the other: rhea merges dispositions that follow each other, even of different outcomes.
let waiting = false;
function next() {
    if (waiting || !wanted.length || !sender.sendable()) return;
    const body = wanted.shift();
    const delivery = sender.send({ body });
    if (body === 'presettled') delivery.update(true);
    else {
        names[delivery.id] = body;
        waiting = true;
    }
}
producer.on('sendable', next);
// rhea announces modified deliveries as released; the flags tell them apart.
for (const outcome of ['accepted', 'rejected', 'released']) {
    producer.on(outcome, (context) => {
        const name = names[context.delivery.id];
        if (name === undefined) return;
        const state = context.delivery.remote_state || {};
        heard[name] = { outcome, error: state.error && {
            condition: state.error.condition, description: state.error.description, info: state.error.info,
        }, failed: state.delivery_failed, undeliverable: state.undeliverable_here };
        done();
        waiting = false;
        next();
    });
}

function done() {
    if (Object.keys(heard).length < 5) return;
    console.log(JSON.stringify(heard));
    process.exit(0);
}
consumer.on('receiver_open', () => {
    producer.connect({ host, port: Number(port), reconnect: false, username: 'anonymous' });
});
consumer.connect({ host, port: Number(port), reconnect: false, username: 'anonymous' });
