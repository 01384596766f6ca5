//! One link to a broker: TCP or TLS. Decides how bytes are read and written; knows nothing of what they mean.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use geminga_core::{ConnId, Endpoint, LinkError, LinkErrorKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::client::TlsStream;
use tokio_util::io::poll_read_buf;

use crate::bell::{Bell, LinkWaker};
use crate::clock::in_time;
use crate::tls::{Tls, tls_cause};

/// Bytes of one read: this much at first, more while reads fill it, less while they don't.
const READ_MIN: usize = 8 << 10;
const READ_MAX: usize = 256 << 10;
/// A smaller rest of the buffer isn't worth a system call of its own.
const READ_WORTHWHILE: usize = 4 << 10;
/// Reads in a row that used less than a quarter of the buffer before it shrinks.
const SMALL_READS: u32 = 64;
/// Slices of one vectored write.
const WRITE_SLICES: usize = 64;

/// A connected stream.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What a link has for the driver.
pub(crate) enum Arrival {
    /// It is open.
    Connected,
    /// Bytes are in its `inbox`.
    Bytes,
    /// It ended, or never opened.
    Ended(LinkError),
}

enum Phase {
    Opening(Pin<Box<dyn Future<Output = Result<Stream, LinkError>> + Send>>),
    Open(Stream),
    Ended,
}

/// One link, from the first attempt to its end.
pub(crate) struct Link {
    pub(crate) conn: ConnId,
    pub(crate) endpoint: Endpoint,
    /// What was read and not yet taken by core.
    pub(crate) inbox: BytesMut,
    /// What core gave and the socket did not take yet.
    pub(crate) outbox: VecDeque<Bytes>,
    /// Whether core has more to send.
    pub(crate) more: bool,
    phase: Phase,
    link_waker: Arc<LinkWaker>,
    waker: Waker,
    read_size: usize,
    small_reads: u32,
    /// TLS holds bytes back until it is flushed.
    unflushed: bool,
}

impl Link {
    /// Starts to connect to `endpoint`, within `limit`.
    pub(crate) fn open(
        conn: ConnId,
        endpoint: Endpoint,
        tls: Arc<Tls>,
        limit: Duration,
        bell: Arc<Bell>,
    ) -> Self {
        let link_waker = LinkWaker::new(conn.as_u64(), bell);
        Link {
            conn,
            endpoint: endpoint.clone(),
            inbox: BytesMut::new(),
            outbox: VecDeque::new(),
            more: false,
            phase: Phase::Opening(Box::pin(connect(endpoint, tls, limit))),
            waker: link_waker.clone().into(),
            link_waker,
            read_size: READ_MIN,
            small_reads: 0,
            unflushed: false,
        }
    }

    /// The next thing that happened, `Pending` when the link's waker will tell.
    pub(crate) fn poll_arrival(&mut self) -> Poll<Arrival> {
        self.link_waker.served();
        let cx = &mut Context::from_waker(&self.waker);
        match &mut self.phase {
            Phase::Opening(connecting) => match connecting.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(stream)) => {
                    tracing::info!(endpoint = %self.endpoint, "connected");
                    self.phase = Phase::Open(stream);
                    Poll::Ready(Arrival::Connected)
                }
                Poll::Ready(Err(error)) => Poll::Ready(self.end(error)),
            },
            Phase::Open(stream) => {
                let spare = self.inbox.capacity() - self.inbox.len();
                // A long partial frame stays where it is: core made room for its rest. A short one is cheap to move.
                if spare == 0 || spare < READ_WORTHWHILE && self.inbox.len() < READ_WORTHWHILE {
                    self.inbox.reserve(self.read_size);
                }
                let offered = self.inbox.capacity() - self.inbox.len();
                match poll_read_buf(Pin::new(stream), cx, &mut self.inbox) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(0)) => {
                        Poll::Ready(self.end(closed("the broker closed the connection".into())))
                    }
                    Poll::Ready(Ok(n)) => {
                        self.adapt(n, offered);
                        Poll::Ready(Arrival::Bytes)
                    }
                    Poll::Ready(Err(e)) => Poll::Ready(self.end(broken(&e))),
                }
            }
            Phase::Ended => Poll::Pending,
        }
    }

    /// Whether core's bytes may be asked for: the link is open and everything before is on its way.
    pub(crate) fn takes_more(&self) -> bool {
        self.more && self.outbox.is_empty() && matches!(self.phase, Phase::Open(_))
    }

    /// Writes what it can of the outbox. An error ends the link.
    pub(crate) fn write(&mut self) -> Option<Arrival> {
        let Phase::Open(stream) = &mut self.phase else { return None };
        let cx = &mut Context::from_waker(&self.waker);
        let result = loop {
            if self.outbox.is_empty() {
                if !self.unflushed {
                    return None;
                }
                match Pin::new(&mut *stream).poll_flush(cx) {
                    Poll::Pending => return None,
                    Poll::Ready(Ok(())) => {
                        self.unflushed = false;
                        return None;
                    }
                    Poll::Ready(Err(e)) => break e,
                }
            }
            match write_slices(stream, cx, &self.outbox) {
                Poll::Pending => return None,
                Poll::Ready(Ok(0)) => break io::ErrorKind::WriteZero.into(),
                Poll::Ready(Ok(n)) => {
                    self.unflushed = matches!(stream, Stream::Tls(_));
                    advance(&mut self.outbox, n);
                }
                Poll::Ready(Err(e)) => break e,
            }
        };
        Some(self.end(broken(&result)))
    }

    /// Says goodbye as far as that needs no waiting: TLS has a word for it.
    pub(crate) fn close(mut self) {
        if let Phase::Open(Stream::Tls(stream)) = &mut self.phase {
            // Nobody waits for the outcome: the socket closes either way.
            drop(Pin::new(stream).poll_shutdown(&mut Context::from_waker(Waker::noop())));
        }
    }

    fn end(&mut self, error: LinkError) -> Arrival {
        tracing::info!(endpoint = %self.endpoint, kind = ?error.kind, reason = %error.message, "link ended");
        self.phase = Phase::Ended;
        self.outbox.clear();
        Arrival::Ended(error)
    }

    /// Big reads while there is much to read; small buffers while there is little, because a message that is kept keeps
    /// the buffer it came in.
    fn adapt(&mut self, read: usize, offered: usize) {
        if read == offered && offered >= self.read_size {
            self.read_size = (self.read_size * 2).min(READ_MAX);
        }
        match read < self.read_size / 4 {
            true => self.small_reads += 1,
            false => self.small_reads = 0,
        }
        if self.small_reads == SMALL_READS {
            self.read_size = (self.read_size / 2).max(READ_MIN);
            self.small_reads = 0;
        }
    }
}

fn write_slices(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    outbox: &VecDeque<Bytes>,
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
    let mut used = 0;
    for (slice, chunk) in slices.iter_mut().zip(outbox) {
        *slice = IoSlice::new(chunk);
        used += 1;
    }
    Pin::new(stream).poll_write_vectored(cx, &slices[..used])
}

/// Drops the first `n` bytes.
fn advance(outbox: &mut VecDeque<Bytes>, mut n: usize) {
    while let Some(front) = outbox.front_mut() {
        if n < front.len() {
            front.advance(n);
            return;
        }
        n -= front.len();
        outbox.pop_front();
    }
}

fn closed(message: String) -> LinkError {
    LinkError { kind: LinkErrorKind::Closed, message }
}

fn broken(error: &io::Error) -> LinkError {
    match tls_cause(error) {
        Some(cause) => LinkError { kind: LinkErrorKind::Tls, message: cause.to_string() },
        None => closed(error.to_string()),
    }
}

/// Resolves the name anew and tries each of its addresses within its share of the time.
async fn connect(endpoint: Endpoint, tls: Arc<Tls>, limit: Duration) -> Result<Stream, LinkError> {
    let unreachable = |message: String| LinkError { kind: LinkErrorKind::Unreachable, message };
    let slow = || unreachable(format!("{endpoint} did not answer within {limit:?}"));
    let end = in_time(limit);
    let host = endpoint.host.as_str();
    let found = timeout_at(end, tokio::net::lookup_host((host, endpoint.port)))
        .await
        .map_err(|_| slow())?
        .map_err(|e| unreachable(format!("{host}: {e}")))?;
    let tcp = dial(host, &in_turn(found), end).await.map_err(unreachable)?;
    // Without it a small write may wait for the answer to the one before; the link works all the same.
    if let Err(e) = tcp.set_nodelay(true) {
        tracing::debug!(%endpoint, error = %e, "TCP_NODELAY was refused");
    }
    match endpoint.tls {
        false => Ok(Stream::Plain(tcp)),
        true => match timeout_at(end, tls.connect(host, tcp)).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream?))),
            Err(_) => Err(slow()),
        },
    }
}

/// The first address that answers; each has its share of the time until `end`.
async fn dial(host: &str, addresses: &[SocketAddr], end: Instant) -> Result<TcpStream, String> {
    let mut why = format!("{host} has no address");
    for (i, address) in addresses.iter().enumerate() {
        let share = end.saturating_duration_since(Instant::now()) / (addresses.len() - i) as u32;
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(e)) => why = format!("{address}: {e}"),
            Err(_) => why = format!("{address} did not answer within {share:?}"),
        }
    }
    Err(why)
}

/// The addresses without doubles, families in turn, so that a broken family costs one try and not all.
fn in_turn(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut first = Vec::new();
    let mut other = Vec::new();
    for address in found {
        let list = match first.first() {
            Some(head) if SocketAddr::is_ipv4(head) != address.is_ipv4() => &mut other,
            _ => &mut first,
        };
        if !list.contains(&address) {
            list.push(address);
        }
    }
    let mut turn = Vec::with_capacity(first.len() + other.len());
    let (mut first, mut other) = (first.into_iter(), other.into_iter());
    loop {
        let (a, b) = (first.next(), other.next());
        if a.is_none() && b.is_none() {
            return turn;
        }
        turn.extend(a.into_iter().chain(b));
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Stream::Tls(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_write(cx, buf),
            Stream::Tls(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_write_vectored(cx, bufs),
            Stream::Tls(s) => Pin::new(s).poll_write_vectored(cx, bufs),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_flush(cx),
            Stream::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Stream::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[test]
    fn address_families_take_turns_and_doubles_are_dropped() {
        let all = ["[::1]:1", "[::2]:1", "[::1]:1", "127.0.0.1:1", "[::3]:1", "127.0.0.2:1"];
        let turn = in_turn(all.iter().map(|a| a.parse().unwrap()));
        let turn: Vec<String> = turn.iter().map(ToString::to_string).collect();
        assert_eq!(turn, ["[::1]:1", "127.0.0.1:1", "[::2]:1", "127.0.0.2:1", "[::3]:1"]);
    }

    /// Two addresses that fail in the two ways there are, before one that works.
    #[tokio::test]
    async fn pb008_all_addresses_of_a_name_are_tried_within_the_connection_timeout() {
        let bound = || {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            socket
        };
        let refusing = bound();
        let dead = refusing.local_addr().unwrap();
        // The kernel drops further attempts once those that nobody accepts fill its queue.
        let full = bound().listen(0).unwrap();
        let silent = full.local_addr().unwrap();
        let mut queued = Vec::new();
        let brief = Duration::from_millis(200);
        while let Ok(connected) = timeout(brief, TcpStream::connect(silent)).await {
            queued.push(connected.unwrap());
        }
        let good = bound().listen(1).unwrap();
        let address = good.local_addr().unwrap();
        let end = Instant::now() + Duration::from_secs(4);
        let tcp = dial("name", &[dead, silent, address], end).await.unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), address);
        let why = dial("name", &[silent, dead], Instant::now() + brief).await.unwrap_err();
        assert!(why.contains(&dead.to_string()), "{why}");
    }

    #[test]
    fn a_partial_write_leaves_exactly_the_rest() {
        let mut outbox: VecDeque<Bytes> = ["abc", "", "de", "f"].map(Bytes::from).into();
        advance(&mut outbox, 4);
        let rest: Vec<u8> = outbox.iter().flatten().copied().collect();
        assert_eq!(rest, b"ef");
        advance(&mut outbox, 2);
        assert!(outbox.is_empty());
    }
}
