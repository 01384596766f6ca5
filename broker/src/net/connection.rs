//! One client's socket: bytes in, bytes out, until either side has had enough.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::hub::{Hub, Wake};
use crate::{Input, LinkId, NodeId};

/// Room for one read.
const READ: usize = 128 * 1024;
/// Bytes taken from the cluster for one round of writing.
const WRITE: usize = 256 * 1024;
/// Chunks in one vectored write.
const SLICES: usize = 64;

/// Serves a socket to its end.
pub(super) async fn serve(hub: &Hub, node: NodeId, socket: TcpStream) {
    let (link, wake) = hub.accept(node);
    let result =
        Connection { hub, link, socket, read: BytesMut::new(), backlog: VecDeque::new() }.run(&wake).await;
    if let Err(error) = result {
        tracing::debug!(link = link.0, %error, "connection lost");
    }
    hub.closed(link);
}

struct Connection<'a> {
    hub: &'a Hub,
    link: LinkId,
    socket: TcpStream,
    read: BytesMut,
    backlog: VecDeque<Bytes>,
}

impl Connection<'_> {
    async fn run(mut self, wake: &Wake) -> io::Result<()> {
        self.socket.set_nodelay(true)?;
        loop {
            let blocked = !self.flush()?;
            if !blocked && wake.closing.load(Ordering::Acquire) && self.flush()? {
                return Ok(());
            }
            let interest = if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            tokio::select! {
                () = wake.notify.notified() => {}
                ready = self.socket.ready(interest) => {
                    if ready?.is_readable() && !self.receive()? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads once; false at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        // A frame that has begun has room for its rest already; moving it for a larger buffer would copy it.
        let spare = self.read.capacity() - self.read.len();
        if spare == 0 || (self.read.is_empty() && spare < READ / 32) {
            self.read.reserve(READ);
        }
        match self.socket.try_read_buf(&mut self.read) {
            Ok(0) => Ok(false),
            Ok(_) => {
                let (link, read) = (self.link, &mut self.read);
                self.hub.with(|cluster, now| cluster.handle(now, Input::Received(link, read)));
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Writes until nothing is left, or the socket is full (false).
    fn flush(&mut self) -> io::Result<bool> {
        loop {
            if self.backlog.is_empty() {
                let mut chunks = Vec::new();
                self.hub.with(|cluster, _| cluster.transmit(self.link, WRITE, &mut chunks));
                self.backlog.extend(chunks);
                if self.backlog.is_empty() {
                    return Ok(true);
                }
            }
            let slices: Vec<IoSlice<'_>> =
                self.backlog.iter().take(SLICES).map(|c| IoSlice::new(c)).collect();
            let mut written = match self.socket.try_write_vectored(&slices) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            while let Some(chunk) = self.backlog.front_mut() {
                if written < chunk.len() {
                    chunk.advance(written);
                    break;
                }
                written -= chunk.len();
                self.backlog.pop_front();
            }
        }
    }
}
