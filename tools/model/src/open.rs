//! Makes connections: their queue pairs, and the receive queues that these share.

use uroce::wire::{Qpn, SrqNumber};

use crate::direction::{Direction, End};
use crate::plan::{Connection, Service, Step};
use crate::pool::{Pool, Queue};
use crate::world::{Link, Side, World};

impl World<'_> {
    /// Makes connection `index`.
    pub(crate) fn open(&mut self, index: usize) {
        let connection = self.plan.connections[index];
        if self.links[index].is_some() || connection.hosts.iter().any(|&host| host >= self.hosts.len()) {
            return;
        }
        let lengths = self.plan.steps.iter().filter_map(|step| match step {
            Step::Post { direction, length, .. } if direction / 2 == index => Some(*length as usize),
            _ => None,
        });
        let needs = End::needs(lengths.clone());
        let posts = lengths.count();
        let sides = [0, 1].map(|side| {
            let host = connection.hosts[side];
            let (qpn, pool) = self.endpoint_of(&connection, side);
            let there = &mut self.hosts[host];
            let end = End::new(there.area(needs));
            let (sends, receives) = (Vec::new(), Vec::new());
            Side { host, life: there.life, qpn, pool, end, sends, receives, is_destroyed: false }
        });
        for side in [0, 1] {
            let peer = &sides[1 - side];
            let peer = (peer.qpn, self.hosts[peer.host].address);
            let Side { host, qpn, pool, .. } = sides[side];
            self.hosts[host].connect(self.now, qpn, &connection, side, peer);
            self.owners.insert((host, qpn), (index, side));
            if let Some(pool) = pool {
                // One more: a message that is never finished keeps the one that it began to fill.
                self.pools[pool].wanted += 1 + if connection.eager { posts } else { 0 };
                let there = &mut self.hosts[host];
                self.pools[pool].top_up(pool, there, self.now, usize::MAX).expect("a new queue has room");
            }
        }
        let directions = [0, 1].map(|_| Direction::new(connection.is_pooled()));
        self.links[index] = Some(Link { plan: index, sides, directions, is_troubled: false });
    }

    /// The queue pair of one side, and the pool that it receives from.
    fn endpoint_of(&mut self, connection: &Connection, side: usize) -> (Qpn, Option<usize>) {
        let Connection { service, shared, .. } = *connection;
        let host = connection.hosts[side];
        let life = self.hosts[host].life;
        if service == Service::Ud
            && let Some((qpn, pool)) = self.datagram_pair(host, life, shared)
        {
            return (qpn, pool);
        }
        let is_target = service == Service::Xrc && side == 1;
        let pool = (is_target || shared && service != Service::Xrc).then(|| self.shared_pool(host, service));
        let srq = pool.and_then(|pool| match self.pools[pool].queue {
            Queue::Shared(srq) => Some(srq),
            Queue::Pair(_) => None,
        });
        let qpn = self.hosts[host].create_qp(connection, side, srq.filter(|_| !is_target));
        let needs_own = !shared && matches!(service, Service::Uc | Service::Ud);
        let pool = if needs_own { Some(self.add_pool(host, service, |_| Queue::Pair(qpn))) } else { pool };
        (qpn, pool)
    }

    /// The queue pair that all datagrams of a host's life use, once there is one.
    fn datagram_pair(&self, host: usize, life: u32, shared: bool) -> Option<(Qpn, Option<usize>)> {
        let is_it = |side: &&Side| side.host == host && side.life == life && !side.is_destroyed;
        let links = self.links.iter().flatten().filter(|link| {
            let plan = &self.plan.connections[link.plan];
            plan.service == Service::Ud && plan.shared == shared
        });
        links.flat_map(|link| &link.sides).find(is_it).map(|side| (side.qpn, side.pool))
    }

    /// The shared receive queue of a host for connections of this service.
    fn shared_pool(&mut self, host: usize, service: Service) -> usize {
        let life = self.hosts[host].life;
        let is_it = |pool: &Pool| {
            (pool.host, pool.life, pool.service) == (host, life, service) && matches!(pool.queue, Queue::Shared(_))
        };
        let found = self.pools.iter().position(is_it);
        found.unwrap_or_else(|| self.add_pool(host, service, |host| Queue::Shared(host.create_srq(service))))
    }

    fn add_pool(
        &mut self,
        host: usize,
        service: Service,
        queue: impl FnOnce(&mut crate::host::Host) -> Queue,
    ) -> usize {
        let connections = self.plan.connections.iter().filter(|connection| connection.service == service);
        // Both sides of a connection may be here.
        let surplus = 2 * connections.count();
        let is_served = |direction: &usize| {
            let connection = self.plan.connections.get(direction / 2);
            connection.is_some_and(|connection| connection.service == service)
        };
        let posts = self.plan.steps.iter().filter_map(|step| match step {
            Step::Post { direction, .. } => Some(*direction),
            _ => None,
        });
        // Twice: what was posted ahead, and what each message asks for.
        let slots = 2 * posts.filter(is_served).count() + surplus;
        self.pools.push(Pool::new(&mut self.hosts[host], host, service, queue, slots));
        self.pools.len() - 1
    }

    /// The shared receive queue that requests of a side of an XRC connection are for.
    pub(crate) fn target_queue(&self, link: &Link, side: usize) -> Option<SrqNumber> {
        let is_xrc = self.plan.connections[link.plan].service == Service::Xrc;
        match link.sides[1 - side].pool.filter(|_| is_xrc).map(|pool| self.pools[pool].queue) {
            Some(Queue::Shared(srq)) => Some(srq),
            _ => None,
        }
    }
}
