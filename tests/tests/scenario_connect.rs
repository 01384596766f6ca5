//! Scenarios of connections: peers that only seem alive, handshakes that break off, reconnection.

use std::time::Duration;

use geminga_core::wire::Command;
use geminga_tests::world::World;

/// The peer finishes CONNECT and then only sends PINGs of its own: that is no sign of life.
#[test]
fn pb001_pings_of_the_peer_alone_do_not_keep_a_connection() {
    let mut w = World::scripted(1);
    w.script.by_hand(&["LOOKUP", "PING"]);
    let producer = w.create_producer(0, "t", |_| {});
    let first = w.hear("LOOKUP");
    for _ in 0..9 {
        w.say(first.link, Command::Ping);
        w.advance(Duration::from_secs(10));
    }
    assert!(!w.script.open_links().contains(&first.link), "dead within two keep-alive periods");
    let second = w.hear("LOOKUP");
    assert_ne!(second.link, first.link, "the request is tried elsewhere");
    assert!(second.at.since(first.at) <= Duration::from_secs(60));
    // The new connection answers as brokers do.
    w.script.by_hand(&[]);
    w.answer(&second);
    w.await_producer(producer).unwrap();
}

/// The peer closes at every stage of opening a link; creation goes on until somebody is there.
#[test]
fn pb002_a_peer_that_hangs_up_in_the_handshake_is_tried_again() {
    for round in 0..200 {
        let mut w = World::scripted(round);
        w.script.by_hand(&["CONNECT"]);
        let producer = w.create_producer(0, "t", |_| {});
        let heard = w.hear("CONNECT");
        match round % 3 {
            0 => {}
            1 => {
                let whole =
                    geminga_tests::world::script::encode(&geminga_tests::world::script::connected(21));
                let part = whole.slice(..1 + round as usize % (whole.len() - 1));
                w.say_bytes(heard.link, part);
            }
            _ => w.cut_link(heard.link),
        }
        if round % 3 != 2 {
            w.hang_up(heard.link);
        }
        w.script.by_hand(&[]);
        w.await_producer(producer).unwrap();
        assert_eq!(w.script.open_links().len(), 1, "one link, none left over");
    }
}
