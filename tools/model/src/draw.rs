//! Plans from seeds.

use crate::plan::{Connection, Plan, Service, Step, Verb, Weather};
use crate::random::Random;

impl Plan {
    /// The plan of a seed: two to six hosts, up to six connections, some tens of requests on each.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        Self { seed, ..Self::draw_from(&mut Random::new(seed)) }
    }

    /// The plan that `bytes` stand for: any do, and a small change of them is a small change of the plan.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::draw_from(&mut Random::given(bytes))
    }

    fn draw_from(random: &mut Random) -> Self {
        let seed = random.bits();
        let hosts = random.pick(&[2, 2, 2, 3, 4, 6]);
        let calm = random.below(10) < 6;
        let count = random.pick(&[1, 1, 2, 3, hosts]);
        let mut connections: Vec<_> = (0..count).map(|_| connection(random, hosts, calm)).collect();
        let window = random.pick(&[16 * 1024, 192 * 1024, 192 * 1024]);
        let mut plan = Self {
            story: String::new(),
            seed,
            hosts,
            window,
            hold_bytes: random.pick(&[0, 3000, 64 * 1024]),
            weather: weather(random, calm),
            connections: Vec::new(),
            steps: Vec::new(),
        };
        let requests = random.pick(&[10, 30, 60]) * count;
        for _ in 0..requests {
            let direction = random.below(2 * count);
            plan.steps.push(post(random, direction, &connections[direction / 2]));
            plan.steps.extend(interlude(random, count));
        }
        if !calm {
            for _ in 0..random.pick(&[1, 1, 2, 3]) {
                let at = random.below(plan.steps.len());
                let trouble = trouble(random, &mut connections, hosts);
                plan.steps.splice(at..at, trouble);
            }
        }
        plan.connections = connections;
        plan
    }
}

fn connection(random: &mut Random, hosts: usize, calm: bool) -> Connection {
    let from = random.below(hosts);
    // Once in a while a host talks to itself.
    let to = if random.once_in(20) { from } else { (from + 1 + random.below(hosts - 1)) % hosts };
    let psns = [random.pick(&[0, 0x7f_fff0, 0xff_ffe0, 0xff_fff8, 0xff_ffff]), random.bits() as u32 & 0xff_ffff];
    let service = random.pick(&[Service::Rc, Service::Rc, Service::Uc, Service::Ud, Service::Xrc]);
    Connection {
        hosts: [from, to],
        service,
        shared: random.once_in(3),
        eager: random.once_in(2),
        late: false,
        mtu: random.pick(&[256, 256, 512, 1024, 1024, 2048, 4096]),
        psns,
        rd_atomic: random.pick(&[1, 2, 4, 16, 128]),
        depth: random.pick(&[2, 16, 128, 128]),
        timeout: if calm { random.pick(&[12, 14, 16]) } else { random.pick(&[1, 5, 8, 12, 14, 16]) },
        retry_count: if calm { 7 } else { random.pick(&[0, 1, 3, 7, 7]) },
        rnr_retry: if calm { 7 } else { random.pick(&[0, 1, 3, 7, 7]) },
        min_rnr_timer: random.pick(&[0, 1, 1, 5, 12, 14, 31]),
    }
}

fn weather(random: &mut Random, calm: bool) -> Weather {
    let least = random.pick(&[0, 1, 5]);
    Weather {
        loss: if calm { random.pick(&[0, 0, 10, 100, 400]) } else { random.pick(&[0, 100, 500, 2000, 4000]) },
        duplicate: random.pick(&[0, 0, 100, 2000]),
        reorder: random.pick(&[0, 0, 100, 500, 3000]),
        corrupt: random.pick(&[0, 0, 0, 100]),
        delay_us: [least, least + random.pick(&[0, 0, 10, 300])],
        late_us: random.pick(&[10, 100, 1000]),
        rate: random.pick(&[0, 0, 0, 1000, 10_000]),
        queue: random.pick(&[64 * 1024, 256 * 1024]),
    }
}

fn post(random: &mut Random, direction: usize, connection: &Connection) -> Step {
    let mtu = connection.mtu;
    let length = match random.below(12) {
        0 => 0,
        1 => 1,
        2 => random.below(64) as u32,
        3 => mtu - 1,
        4 => mtu,
        5 => mtu + 1,
        6 => 2 * mtu,
        7 => 5 * mtu + 3,
        8 => random.below(4 * mtu as usize) as u32,
        9 if random.once_in(6) => 40_000 + random.below(60_000) as u32,
        _ => random.below(512) as u32,
    };
    // XRC goes one way, and what a service does not carry would be skipped.
    let direction = if connection.service == Service::Xrc { direction & !1 } else { direction };
    let carried = |verb: &Verb| connection.service.carries(*verb, direction % 2);
    let verbs: Vec<_> = Verb::GOOD.into_iter().filter(carried).collect();
    Step::Post { direction, verb: random.pick(&verbs), length, shape: random.bits() }
}

/// What comes between two requests.
fn interlude(random: &mut Random, connections: usize) -> Vec<Step> {
    let direction = random.below(2 * connections);
    let mut steps = Vec::new();
    if random.once_in(2) {
        steps.push(Step::Receive { direction, count: 1 + random.below(4) });
    }
    match random.below(40) {
        0..6 => steps.push(Step::Run { micros: 1 + random.below(30) as u32 }),
        6..8 => steps.push(Step::Run { micros: random.below(3000) as u32 }),
        8 => steps.push(Step::Drain { direction }),
        9..11 => steps.push(Step::Resume { direction }),
        11 => steps.push(Step::Stall { host: random.below(2), micros: random.below(8000) as u32 }),
        _ => {}
    }
    steps
}

/// What may end connections, and what programs do about it.
fn trouble(random: &mut Random, connections: &mut Vec<Connection>, hosts: usize) -> Vec<Step> {
    let direction = random.below(2 * connections.len());
    let host = random.below(hosts);
    match random.below(8) {
        0 | 1 => {
            let verb = random.pick(&Verb::BAD);
            vec![Step::Post { direction, verb, length: 1 + random.below(5000) as u32, shape: random.bits() }]
        }
        2 => vec![Step::Fail { direction }],
        3 => vec![Step::Destroy { direction }],
        4 | 5 => {
            // A new connection with a host that has forgotten the old ones, beside peers that have not.
            let mut again = connection(random, hosts, true);
            again.late = true;
            // Nothing keeps what was sent to the dead from the living, where a receiver follows any PSN.
            if !again.service.is_reliable() {
                again.service = Service::Rc;
            }
            // Queue pair numbers begin anew, so nothing but the PSNs tells the packets of the lives apart.
            again.psns = [random.bits() as u32 & 0xff_ffff, random.bits() as u32 & 0xff_ffff];
            again.hosts[0] = host;
            connections.push(again);
            let opened = connections.len() - 1;
            let mut steps = vec![Step::Restart { host }, Step::Open { connection: opened }];
            for n in 0..10 {
                steps.push(post(random, 2 * opened + n % 2, &again));
            }
            steps
        }
        6 => {
            let to = random.below(hosts);
            let mut steps = vec![Step::Cut { from: host, to, cut: true }];
            if random.once_in(2) {
                steps.push(Step::Run { micros: random.pick(&[100, 10_000, 300_000]) });
                steps.push(Step::Cut { from: host, to, cut: false });
            }
            steps
        }
        _ => vec![
            Step::Weather(Weather { loss: 9000, ..weather(random, false) }),
            Step::Run { micros: random.pick(&[50, 5000, 100_000]) },
            Step::Weather(weather(random, true)),
        ],
    }
}
