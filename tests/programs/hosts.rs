//! Two hosts on one link: network namespaces of an ordinary user's own.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::launch::{Launch, NOBODY, Running, Said, gives_up_root, skip};

/// A veth pair with jumbo frames, one end in this namespace, one in another. GID 0 is a link-local address, GID 1 an IPv4 address,
/// both there at once. The other namespace lives as long as its `sleep`.
const LINK: &str = "
set -e
unshare --net sleep 3600 <&- >&- 2>&- & other=$!
trap 'kill $other' EXIT
until [ \"$(readlink /proc/$other/ns/net)\" != \"$(readlink /proc/$$/ns/net)\" ]; do sleep 0.01; done
ip link add h0 type veth peer name h0 netns $other
up='set -e
ip link set lo up
ip link set h0 addrgenmode none mtu 9000 up
ip address add fe80::$1/64 dev h0 nodad
ip address add 10.66.0.$1/24 dev h0'
sh -c \"$up\" sh 1
nsenter --target $other --net sh -c \"$up\" sh 2
echo $$ $other
cat > /dev/null
";

/// The device of either host.
const DEVICE: &str = "uroce_h0";

/// Two hosts, `SERVER` and the client, until this is dropped.
pub(crate) struct Hosts {
    holder: Child,
    /// A process of each host: of the server's, and the client's.
    pids: [String; 2],
}

impl Hosts {
    /// The server's address.
    pub(crate) const SERVER: &str = "10.66.0.1";

    /// Makes them; `None`, loudly, where the user may not.
    pub(crate) fn make() -> Option<Self> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--net", "sh", "-c", LINK]);
        if gives_up_root() {
            unshare.uid(NOBODY).gid(NOBODY);
        }
        let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take()?).read_line(&mut line).ok()?;
        let pids: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let Ok(pids) = <[String; 2]>::try_from(pids) else {
            let _ = holder.wait();
            skip("no network namespaces for ordinary users, or no ip(8)");
            return None;
        };
        Some(Self { holder, pids })
    }

    /// A program on the server's host, and one on the client's, which starts when the server listens on `port`.
    #[track_caller]
    pub(crate) fn run(&self, port: u16, server: &[&str], client: &[&str]) -> [Said; 2] {
        let server = self.start(0, server).listens_in(&self.pids[0], port);
        let client = self.start(1, client).finish();
        [server.finish(), client]
    }

    /// A program on the server's host (0), or the client's (1).
    pub(crate) fn start(&self, host: usize, program: &[&str]) -> Running {
        let enter = ["nsenter", "--target", &self.pids[host], "--user", "--net", "--preserve-credentials"];
        Launch::behind(&enter, DEVICE, program).start()
    }

    /// Waits until the server's host listens on `port`.
    pub(crate) fn listens(&self, server: Running, port: u16) -> Running {
        server.listens_in(&self.pids[0], port)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // The end of its input ends it, and with it the namespaces.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
