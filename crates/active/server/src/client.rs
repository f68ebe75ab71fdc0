//! A host: it sends capsules to its node, and waits for what they deliver.

use crate::certificates::Judge;
use crate::config::Config;
use crate::serve::{MAX_DATAGRAM, ServeError, is_passing, links};
use flame_active_link::{Clock, Links, Mode, Received};
use flame_capsule::{
    Capsule, CodeMessage, Grant, Hash, Key, Limits, MAX_CODE, Message, Payer, Place, hash_of,
};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// A capsule that begins at the host's node.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub code: &'a [u8],
    pub function: u8,
    pub arguments: &'a [u8],
    pub limits: Limits,
    /// Whether the code goes with the hash, also where it is cached.
    pub with_code: bool,
}

/// The host's own time for its capsules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spans {
    /// Authenticators, made and verified.
    pub authentication: Duration,
    /// Calls of the socket that send.
    pub transmission: Duration,
}

/// A host with a link to its node.
pub struct Client<K> {
    links: Links<Judge>,
    socket: UdpSocket,
    node: SocketAddr,
    clock: K,
    payer: Payer,
    key: Key,
    buffer: Vec<u8>,
    message: Vec<u8>,
    datagram: Vec<u8>,
    pub spans: Spans,
}

impl<K: FnMut() -> Clock> Client<K> {
    /// Opens a socket, and exchanges keys with the first neighbour within `patience`. Returns `None` if it
    /// does not answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration cannot be used, or the socket fails.
    pub fn open(config: &Config, mut clock: K, patience: Duration) -> Result<Option<Self>, ServeError> {
        let socket = UdpSocket::bind(config.listen).map_err(|e| ServeError::Bind(config.listen, e))?;
        let Some((place, node)) = config.settings.map.neighbours().next() else { return Ok(None) };
        let mut links = links(config, clock())?;
        links.expect(node, place);
        let mut key = Key::default();
        getrandom::fill(&mut key.0).map_err(|e| ServeError::Sandbox(e.to_string()))?;
        let (buffer, message, datagram) = (vec![0; MAX_DATAGRAM + 1], Vec::new(), Vec::new());
        let (payer, spans) = (config.payer(), Spans::default());
        let mut client = Self { links, socket, node, clock, payer, key, buffer, message, datagram, spans };
        let begun = Instant::now();
        while begun.elapsed() < patience {
            let now = (client.clock)();
            if client.links.is_linked(node, now.wall) {
                return Ok(Some(client));
            }
            if let Ok(Some(first)) = client.links.connect(node, now) {
                // A node that does not listen yet is asked again.
                let _ = client.socket.send_to(&first, node);
            }
            client.receive(None, patience.saturating_sub(begun.elapsed()).min(Duration::from_millis(100)))?;
        }
        let now = (client.clock)();
        Ok(client.links.is_linked(node, now.wall).then_some(client))
    }

    /// Sends a capsule.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn send(&mut self, question: &Question<'_>) -> Result<(), ServeError> {
        let Question { code, function, arguments, limits, with_code } = *question;
        let capsule = Capsule {
            function,
            limits,
            origin: Place::NOWHERE,
            place: Place::NOWHERE,
            payer: self.payer,
            key: self.key,
            hash: hash_of(code),
            grant: Grant::ALL,
            arguments,
            code: with_code.then_some(code),
        };
        self.put(&Message::Capsule(capsule))
    }

    fn put(&mut self, message: &Message<'_>) -> Result<(), ServeError> {
        self.message.clear();
        self.datagram.clear();
        message.write(&mut self.message);
        let begun = Instant::now();
        let now = (self.clock)();
        let sealed = self.links.seal(self.node, Mode::Authenticated, &self.message, now, &mut self.datagram);
        let made = begun.elapsed();
        self.spans.authentication += made;
        if sealed.is_ok() {
            match self.socket.send_to(&self.datagram, self.node) {
                Err(error) if !is_passing(&error) => return Err(ServeError::Socket(error)),
                _ => self.spans.transmission += begun.elapsed() - made,
            }
        }
        Ok(())
    }

    /// Waits for what is delivered, for at most `patience`. Meanwhile the node may ask for `code`.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn receive(
        &mut self,
        code: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Option<Vec<u8>>, ServeError> {
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left)).map_err(ServeError::Socket)?;
            let (length, from) = match self.socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(ServeError::Socket(error)),
            };
            let now = (self.clock)();
            let arrived = Instant::now();
            let received = self.links.receive(from, &mut self.buffer[..length], now);
            let asked: Hash;
            match received {
                Ok(Received::Step(answer) | Received::Begun(answer)) => {
                    let _ = self.socket.send_to(&answer, from);
                    return Ok(None);
                }
                Ok(Received::Nothing) => return Ok(None),
                Ok(Received::Packet { body, .. }) => {
                    self.spans.authentication += arrived.elapsed();
                    match Message::read(body) {
                        Ok(Message::Delivery(delivery)) if delivery.key == self.key => {
                            return Ok(Some(delivery.bytes.to_vec()));
                        }
                        Ok(Message::Request(request)) if request.most as usize <= MAX_CODE => {
                            asked = request.hash
                        }
                        _ => continue,
                    }
                }
                Ok(Received::Plain(_)) | Err(_) => continue,
            }
            if let Some(code) = code.filter(|code| hash_of(code) == asked) {
                self.put(&Message::Code(CodeMessage { hash: asked, code }))?;
            }
        }
    }
}
