//! Handshake, keep-alive and authentication.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::proto::{self, ServerError};
use geminga_core::wire::{Command, frame};

use crate::world::{World, connect, error_of};

#[test]
fn the_protocol_version_is_the_lower_of_the_two() {
    let mut w = World::new();
    for (client, agreed) in [(0, 0), (19, 19), (99, 21)] {
        let link = w.raw_link(0);
        w.send(link, connect(client));
        let Command::Connected(connected) = w.next(link) else { panic!("not connected") };
        assert_eq!(connected.protocol_version(), agreed);
        assert_eq!(connected.max_message_size(), 5 * 1024 * 1024);
    }
}

#[test]
fn anything_before_connect_and_a_second_connect_close_the_link() {
    let mut w = World::new();
    let early = w.raw_link(0);
    w.send(early, Command::Ping);
    assert!(w.is_closed(early));
    let twice = w.link();
    w.send(twice, connect(21));
    assert!(w.is_closed(twice));
}

#[test]
fn unknown_commands_and_broken_frames_close_the_link() {
    let mut w = World::new();
    let unknown = w.link();
    w.send(unknown, Command::Unknown(999));
    assert!(w.is_closed(unknown));
    for broken in [&[0, 0, 0, 1, 0][..], &[0x7f, 0xff, 0xff, 0xff], &[0, 0, 0, 5, 0, 0, 0, 1, 0xff]] {
        let link = w.link();
        w.send_bytes(link, BytesMut::from(broken));
        assert!(w.is_closed(link), "{broken:?}");
    }
}

#[test]
fn a_frame_may_come_in_any_pieces() {
    let mut w = World::new();
    let link = w.raw_link(0);
    let mut bytes = BytesMut::new();
    connect(21).encode(&mut bytes);
    Command::Ping.encode(&mut bytes);
    let mut tail = BytesMut::new();
    for byte in bytes {
        tail.extend_from_slice(&[byte]);
        w.cluster.handle(w.now, geminga_broker::Input::Received(link, &mut tail));
    }
    assert!(tail.is_empty());
    let answers = w.commands(link);
    assert!(matches!(answers[..], [Command::Connected(_), Command::Pong]), "{answers:?}");
}

#[test]
fn a_silent_link_is_pinged_and_then_closed() {
    let mut w = World::new();
    let alive = w.link();
    let silent = w.link();
    w.mute(silent);
    w.advance(Duration::from_secs(59));
    assert!(!w.is_closed(silent));
    w.advance(Duration::from_secs(1));
    assert!(w.is_closed(silent));
    w.advance(Duration::from_secs(300));
    assert!(!w.is_closed(alive));
    let nothing = w.raw_link(0);
    w.advance(Duration::from_secs(30));
    assert!(w.is_closed(nothing), "no CONNECT within the interval");
}

#[test]
fn a_configured_token_is_asked_for_and_refreshed() {
    let mut w = World::with(|config| config.tokens = vec!["secret".to_owned()]);
    let refused = w.raw_link(0);
    w.send(refused, connect(21));
    assert_eq!(error_of(&w.commands(refused)), ServerError::AuthenticationError);
    assert!(w.is_closed(refused));

    let link = w.raw_link(0);
    let token = |text: &'static str| (Some("token".to_owned()), Some(Bytes::from_static(text.as_bytes())));
    let (auth_method_name, auth_data) = token("secret");
    let connect = proto::CommandConnect { auth_method_name, auth_data, ..Default::default() };
    w.send(link, Command::Connect(Box::new(connect)));
    assert!(matches!(w.next(link), Command::Connected(_)));
    w.cluster.challenge(link);
    let Command::AuthChallenge(challenge) = w.next(link) else { panic!("no challenge") };
    assert_eq!(&challenge.challenge.unwrap().auth_data.unwrap()[..], b"PulsarAuthRefresh");
    let answer = |text| {
        let (auth_method_name, auth_data) = token(text);
        let response = Some(proto::AuthData { auth_method_name, auth_data });
        Command::AuthResponse(proto::CommandAuthResponse { response, ..Default::default() })
    };
    w.send(link, answer("secret"));
    assert!(!w.is_closed(link));
    w.send(link, answer("wrong"));
    assert!(w.is_closed(link));
}

#[test]
fn what_the_broker_writes_is_framed_as_observed() {
    let mut w = World::new();
    let link = w.link();
    w.subscribe(link, 5, SubType::Exclusive);
    let mut success = BytesMut::new();
    Command::Success(proto::CommandSuccess { request_id: 5, ..Default::default() }).encode(&mut success);
    assert_eq!(&success[..], [0, 0, 0, 0x0a, 0, 0, 0, 6, 8, 0x0d, 0x6a, 2, 8, 5]);
    assert!(frame::split(&mut success, 100).unwrap().is_some());
}
