//! Readiness of sockets, and moving bytes.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use longshore_reactor::{EngineConfig, EngineEvent, EngineKind, Readiness, SocketToken, socket};

use crate::rig::{A_WHILE, Rig, listener, on_both_engines, pair};

const TOKEN: SocketToken = SocketToken(7);

fn receive(from: &OwnedFd, into: &mut [u8]) -> std::io::Result<usize> {
    socket::receive(from, &mut [IoSliceMut::new(into)])
}

/// Receives until nothing is left and checks what it was.
fn expect_received(from: &OwnedFd, expected: &[u8]) {
    let mut bytes = vec![0; expected.len() + 1];
    assert_eq!(receive(from, &mut bytes).unwrap(), expected.len());
    assert_eq!(&bytes[..expected.len()], expected);
}

/// Sends as much as the socket takes; returns how much.
fn fill(into: &OwnedFd) -> usize {
    let chunk = vec![0xa5; 1 << 20];
    let mut sent = 0;
    loop {
        match socket::send(into, &[IoSlice::new(&chunk)], false) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return sent;
            }
        }
    }
}

on_both_engines! {
    fn new_connection_is_reported_as_writable_only(rig) {
        let (_ours, _peer) = rig.connection(TOKEN);
        let readiness = rig.wait_for(TOKEN, Readiness::is_writable);
        assert!(!readiness.is_readable() && !readiness.is_hang_up());
    }

    fn bytes_that_came_before_registration_are_reported(rig) {
        let (ours, mut peer) = pair();
        peer.write_all(b"early").unwrap();
        // Loopback delivers before write returns.
        rig.engine.register(ours.as_fd(), TOKEN).unwrap();
        rig.wait_for(TOKEN, Readiness::is_readable);
        expect_received(&ours, b"early");
    }

    fn an_engine_may_poll_network_cards_as_well(rig) {
        if let Err(error) = rig.engine.poll_network(20, true) {
            eprintln!("SKIPPED: no NAPI busy poll of engines before Linux 6.9: {error}");
        }
        let (ours, mut peer) = rig.connection(TOKEN);
        for round in 0..50_u8 {
            peer.write_all(&[round]).unwrap();
            rig.wait_for(TOKEN, Readiness::is_readable);
            expect_received(&ours, &[round]);
        }
    }

    fn arrival_is_reported_once(rig) {
        let (_ours, mut peer) = rig.connection(TOKEN);
        peer.write_all(b"x").unwrap();
        rig.wait_for(TOKEN, Readiness::is_readable);
        rig.expect_nothing_readable();
    }

    fn arrival_is_reported_again_although_the_first_was_not_received(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        peer.write_all(b"x").unwrap();
        rig.wait_for(TOKEN, Readiness::is_readable);
        peer.write_all(b"y").unwrap();
        rig.wait_for(TOKEN, Readiness::is_readable);
        expect_received(&ours, b"xy");
    }

    fn after_would_block_the_next_arrival_is_reported(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        for round in 0..50_u8 {
            assert_eq!(receive(&ours, &mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
            peer.write_all(&[round]).unwrap();
            rig.wait_for(TOKEN, Readiness::is_readable);
            let mut byte = [0];
            assert_eq!(receive(&ours, &mut byte).unwrap(), 1);
            assert_eq!(byte, [round]);
        }
    }

    fn after_a_short_receive_the_next_arrival_is_reported(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        for round in 0..50_u8 {
            peer.write_all(&[round; 3]).unwrap();
            rig.wait_for(TOKEN, Readiness::is_readable);
            expect_received(&ours, &[round; 3]);
        }
    }

    fn arrival_between_turns_is_reported_by_the_next(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        rig.wait_for(TOKEN, Readiness::is_writable);
        peer.write_all(b"now").unwrap();
        let events = rig.turn(std::time::Duration::ZERO);
        let readable = events.iter().any(|event| {
            matches!(event, EngineEvent::Socket { readiness, .. } if readiness.is_readable())
        });
        assert!(readable, "{events:?}");
        expect_received(&ours, b"now");
    }

    fn end_of_stream_is_a_readable_hang_up(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        peer.write_all(b"bye").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let readiness = rig.wait_for(TOKEN, Readiness::is_hang_up);
        assert!(readiness.is_readable());
        expect_received(&ours, b"bye");
        assert_eq!(receive(&ours, &mut [0; 8]).unwrap(), 0);
    }

    fn reset_is_a_readable_hang_up(rig) {
        let (ours, peer) = rig.connection(TOKEN);
        rig.wait_for(TOKEN, Readiness::is_writable);
        socket::reset_on_close(&peer).unwrap();
        drop(peer);
        let readiness = rig.wait_for(TOKEN, Readiness::is_hang_up);
        assert!(readiness.is_readable());
        let error = receive(&ours, &mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    fn send_to_a_closed_connection_is_an_error_and_no_signal(rig) {
        let (ours, peer) = rig.connection(TOKEN);
        socket::reset_on_close(&peer).unwrap();
        drop(peer);
        rig.wait_for(TOKEN, Readiness::is_hang_up);
        let _ = socket::take_error(&ours);
        let error = socket::send(&ours, &[IoSlice::new(b"x")], false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }

    fn full_socket_is_reported_as_writable_once_the_peer_has_read(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        rig.wait_for(TOKEN, Readiness::is_writable);
        for _ in 0..3 {
            let mut sent = fill(&ours);
            // The peer's kernel may still make room for more.
            while !rig.turn(A_WHILE).is_empty() {
                sent += fill(&ours);
            }
            let reader = std::thread::spawn(move || {
                peer.read_exact(&mut vec![0; sent]).unwrap();
                peer
            });
            rig.wait_for(TOKEN, Readiness::is_writable);
            peer = reader.join().unwrap();
        }
    }

    fn slices_are_sent_and_received_in_order(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        let slices = [IoSlice::new(b"head"), IoSlice::new(b""), IoSlice::new(b"payload")];
        assert_eq!(socket::send(&ours, &slices, false).unwrap(), 11);
        let mut bytes = [0; 11];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"headpayload");
        peer.write_all(&bytes).unwrap();
        rig.wait_for(TOKEN, Readiness::is_readable);
        let (mut head, mut payload) = ([0; 4], [0; 9]);
        let mut slices = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut payload)];
        assert_eq!(socket::receive(&ours, &mut slices).unwrap(), 11);
        assert_eq!((&head, &payload), (b"head", b"payload\0\0"));
    }

    fn more_slices_than_the_kernel_takes_are_refused_not_truncated(rig) {
        let (ours, _peer) = rig.connection(TOKEN);
        let slices = vec![IoSlice::new(b"x"); socket::IO_SLICES_MAX];
        assert_eq!(socket::send(&ours, &slices, false).unwrap(), socket::IO_SLICES_MAX);
        let slices = vec![IoSlice::new(b"x"); socket::IO_SLICES_MAX + 1];
        let error = socket::send(&ours, &slices, false).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }

    fn waiting_connections_are_reported_and_accepted(rig) {
        let (listener, address) = listener();
        rig.engine.register(listener.as_fd(), TOKEN).unwrap();
        for round in 1..4 {
            let peers: Vec<_> = (0..round).map(|_| TcpStream::connect(address).unwrap()).collect();
            rig.wait_for(TOKEN, Readiness::is_readable);
            for peer in &peers {
                let (ours, from) = socket::accept(&listener).unwrap();
                assert_eq!(from, peer.local_addr().unwrap());
                assert_eq!(receive(&ours, &mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
            assert_eq!(socket::accept(&listener).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }

    fn outgoing_connection_becomes_writable(rig) {
        let (listener, address) = listener();
        let ours = socket::connect(address).unwrap();
        rig.engine.register(ours.as_fd(), TOKEN).unwrap();
        let readiness = rig.wait_for(TOKEN, Readiness::is_writable);
        assert!(!readiness.is_hang_up());
        assert!(socket::take_error(&ours).unwrap().is_none());
        socket::accept(&listener).unwrap();
    }

    fn refused_connection_is_a_hang_up_with_an_error(rig) {
        let (listener, address) = listener();
        drop(listener);
        let Ok(ours) = socket::connect(address) else { return };
        rig.engine.register(ours.as_fd(), TOKEN).unwrap();
        rig.wait_for(TOKEN, Readiness::is_hang_up);
        let error = socket::take_error(&ours).unwrap().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    fn deregistered_socket_is_not_reported(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        peer.write_all(b"x").unwrap();
        rig.engine.deregister(ours.as_fd(), TOKEN);
        peer.write_all(b"y").unwrap();
        assert!(rig.turn(A_WHILE).is_empty());
    }

    fn deregistered_and_closed_socket_is_closed_for_the_peer_at_once(rig) {
        let (ours, mut peer) = rig.connection(TOKEN);
        rig.wait_for(TOKEN, Readiness::is_writable);
        rig.engine.deregister(ours.as_fd(), TOKEN);
        drop(ours);
        // No further turn happens before the peer sees it.
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }

    fn socket_registered_in_the_place_of_another_gets_its_own_events(rig) {
        for round in 0..20 {
            let token = SocketToken::new(3, round);
            let (ours, mut peer) = rig.connection(token);
            peer.write_all(b"x").unwrap();
            if round % 2 == 0 {
                rig.wait_for(token, Readiness::is_readable);
            }
            rig.engine.deregister(ours.as_fd(), token);
        }
        assert!(rig.turn(A_WHILE).is_empty());
    }

    fn more_busy_sockets_than_completions_are_all_reported(rig) {
        const SOCKETS: u64 = 200;
        let config = EngineConfig { ring_entries: 4, completion_entries: 8, ..Default::default() };
        let mut small = rig.resized(config);
        let mut connections: Vec<_> =
            (0..SOCKETS).map(|token| small.connection(SocketToken(token))).collect();
        for round in 0..5_u8 {
            for (_, peer) in &mut connections {
                peer.write_all(&[round]).unwrap();
            }
            let mut received = 0;
            while received < SOCKETS {
                for event in small.next_events() {
                    let EngineEvent::Socket { token, .. } = event else { continue };
                    let (ours, _) = &connections[usize::try_from(token.0).unwrap()];
                    let mut byte = [0; 2];
                    if let Ok(count) = receive(ours, &mut byte) {
                        assert_eq!((count, byte[0]), (1, round));
                        received += 1;
                    }
                }
            }
        }
        let overflows = small.engine.counters().completion_overflows;
        assert_eq!(overflows > 0, small.engine.kind() == EngineKind::IoUring);
    }

    fn end_of_a_connection_is_noticed_however_it_comes(rig) {
        for round in 0..400_u32 {
            let token = SocketToken(u64::from(round));
            let (ours, mut peer) = rig.connection(token);
            let other = std::thread::spawn(move || {
                for _ in 0..round % 7 {
                    peer.write_all(&[1; 100]).unwrap();
                }
                if round % 2 == 0 {
                    socket::reset_on_close(&peer).unwrap();
                }
            });
            echo(rig, &ours);
            rig.engine.deregister(ours.as_fd(), token);
            other.join().unwrap();
        }
    }

    fn sixty_four_mebibytes_are_echoed_unchanged(rig) {
        const TOTAL: usize = 64 << 20;
        let (ours, peer) = rig.connection(TOKEN);
        let mut writer = peer.try_clone().unwrap();
        let mut reader = peer;
        let pattern = |at: usize| u8::try_from((at ^ (at >> 8) ^ (at >> 16)) & 0xff).unwrap();
        let writer = std::thread::spawn(move || {
            let mut at = 0;
            while at < TOTAL {
                let chunk: Vec<u8> = (at..TOTAL.min(at + 70_001)).map(pattern).collect();
                writer.write_all(&chunk).unwrap();
                at += chunk.len();
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let reader = std::thread::spawn(move || {
            let mut chunk = vec![0; 1 << 20];
            let mut at = 0;
            loop {
                let count = reader.read(&mut chunk).unwrap();
                if count == 0 {
                    return at;
                }
                let expected = (at..at + count).map(pattern);
                assert!(chunk[..count].iter().copied().eq(expected), "wrong near {at}");
                at += count;
            }
        });
        echo(rig, &ours);
        writer.join().unwrap();
        socket::shutdown(&ours, Shutdown::Write).unwrap();
        assert_eq!(reader.join().unwrap(), TOTAL);
    }
}

/// Sends back what comes, until the end of the connection.
fn echo(rig: &mut Rig, ours: &OwnedFd) {
    let mut bytes = vec![0; 256 << 10];
    let mut pending = 0..0;
    let (mut readable, mut writable, mut hang_up) = (false, false, false);
    loop {
        if pending.is_empty() && readable {
            match receive(ours, &mut bytes) {
                Ok(0) => return,
                Ok(count) => {
                    readable = hang_up || count == bytes.len();
                    pending = 0..count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => readable = false,
                Err(_) => return,
            }
        } else if !pending.is_empty() && writable {
            let slice = IoSlice::new(&bytes[pending.clone()]);
            match socket::send(ours, &[slice], false) {
                Ok(count) => pending.start += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => writable = false,
                // What broke it is found when receiving.
                Err(_) => pending = 0..0,
            }
        } else {
            for event in rig.next_events() {
                let EngineEvent::Socket { readiness, .. } = event else {
                    continue;
                };
                readable |= readiness.is_readable();
                writable |= readiness.is_writable();
                hang_up |= readiness.is_hang_up();
            }
        }
    }
}
