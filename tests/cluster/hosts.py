"""Several hosts on one machine: each with its own hostname, network, processes, shared memory, /tmp and sshd.

A test calls enter() first.  It starts itself again inside a *room*: namespaces of its own, in which it is process 1.
Everything is made in there: the switch (a bridge), the cables (veth), the hosts.  When the test ends, however it ends,
the kernel ends every process of the room and takes down its links and mounts, so nothing can be left on the machine.

    hosts.enter()
    with hosts.Cluster(2) as cluster:
        result = cluster.run({"pipeline": 4}, ["run", path, "--json"])

Every host sees the room's /mnt (where topologies lie) and the source tree; its /tmp is its own.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import running
from wire import Wire

SHARED = "/mnt"  # in the room: memory that every host sees
ROOM = "HOSTS_PY_ROOM"
SKIP = 77
LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch")
TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount",
         "sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
UNSHARE = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def tool(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def command(*words):
    """Run a tool that must succeed; what it printed."""
    words = [tool(words[0]) or words[0], *words[1:]]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError("%s: exit %d: %s" % (" ".join(words), done.returncode, done.stdout.strip()))
    return done.stdout


def obstacle():
    """Why this machine cannot hold several hosts; None: it can."""
    for name, package in TOOLS.items():
        if not tool(name):
            return "%s is not there (Debian package %s)" % (name, package)
    if os.geteuid() != 0:
        return "making network namespaces and starting sshd needs root"
    script = ("mount -t tmpfs none %s && ip link add bridge9 type bridge && ip link add cable9 type veth peer name eth9"
              " && tc qdisc add dev cable9 root tbf rate 1mbit burst 8kb latency 100ms && ip tuntap add tap9 mode tap"
              % SHARED)
    tried = subprocess.run([*UNSHARE, "sh", "-c", script], capture_output=True, text=True, check=False)
    if tried.returncode:
        return "namespaces are not allowed here: " + (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    return None


def enter():
    """Go on inside a room; where that cannot be, say SKIP with the reason."""
    if os.environ.get(ROOM):
        command("mount", "-t", "tmpfs", "none", SHARED)
        command("ip", "link", "set", "lo", "up")
        tempfile.tempdir = SHARED
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # process 1 would not hear it otherwise
        return
    why = obstacle()
    if why:
        print("1..0 # SKIP " + why, flush=True)
        sys.exit(SKIP)
    os.environ[ROOM] = "1"
    # Python as process 1 of the room; unshare passes on its exit status.
    os.execvp("unshare", [*UNSHARE, sys.executable, *sys.argv])


def namespace(pid):
    """The process namespace of a process, as the kernel names it; "": it is gone."""
    try:
        return os.readlink("/proc/%s/ns/pid" % pid)
    except OSError:
        return ""


class Host:
    """One host: an init process in namespaces of its own, with sshd below it."""

    def __init__(self, name, address, folder, names):
        self.name, self.address = name, address
        self.start = time.monotonic()
        keep = [path for path in {running.ROOT, os.path.dirname(running.FERRY)} if path.startswith("/tmp/")]
        self.process = subprocess.Popen(
            [*UNSHARE, sys.executable, os.path.abspath(__file__), "init", name, folder, names, *keep],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.told = self.process.stdout.readline()
        if self.told != "made\n":
            raise RuntimeError("host %s does not start: %s" % (name, self.told + self.process.stdout.read()))
        self.pid = self._child()
        self.namespace = namespace(self.pid)

    def _child(self):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and running._stat(int(entry))[1][1:2] == [str(self.process.pid)]:
                return int(entry)
        raise RuntimeError("host %s has no process" % self.name)

    def enter(self, *words):
        """The command line that runs these words on the host."""
        return ["nsenter", "--target", str(self.pid), "--mount", "--uts", "--ipc", "--net", "--pid",
                "--wd=" + SHARED, *words]

    def do(self, *words):
        return command(*self.enter(*words))

    def ready(self):
        """Wait until sshd listens."""
        self.told = self.process.stdout.readline()
        if self.told != "ready\n":
            raise RuntimeError("host %s: %s" % (self.name, self.told))
        self.resident = set(self.pids())

    def pids(self):
        """Its living processes, numbered as the room numbers them."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and namespace(entry) == self.namespace:
                fields = running._stat(int(entry))[1]
                if fields and fields[0] not in "ZX":
                    found.append(int(entry))
        return found

    def jobs(self):
        """Its processes other than init and sshd, whose sessions last as long as their connections."""
        return [pid for pid in self.pids() if pid not in self.resident and running._stat(pid)[0] != "sshd"]

    def link(self, state):
        """Cut the cable ("down") or mend it ("up"): at the switch, so that the host itself learns nothing."""
        command("ip", "link", "set", "cable-" + self.name, state)

    def kill(self):
        """End all its processes, init included, at once: the kernel does."""
        self.process.kill()
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def kill_jobs(self):
        """End its processes, but not the host."""
        for pid in self.jobs():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Cluster:
    """Hosts node1, node2, ... on one switch; jobs start on node1.  wire: {host number: Wire options} for bad cables."""

    count = 0

    def __init__(self, size, wire=None):
        Cluster.count += 1
        self.number = Cluster.count
        self.folder = tempfile.mkdtemp(prefix="cluster-")
        self.names = ["node%d" % (i + 1) for i in range(size)]
        if self.number > 1:  # several clusters share a room: their cables need different names
            self.names = ["c%d%s" % (self.number, name) for name in self.names]
        self.hosts, self.wires = [], []
        self.switch = "switch%d" % self.number
        command("ip", "link", "add", self.switch, "type", "bridge")
        command("ip", "link", "set", self.switch, "up")
        self._keys()
        for i, name in enumerate(self.names):
            self.hosts.append(self._host(i, name, (wire or {}).get(i)))

    def _keys(self):
        """One key for the user, known everywhere; each host makes its own."""
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.folder, "user"))
        self.config = os.path.join(self.folder, "ssh_config")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write("Host *\nIdentityFile %s/user\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
                       "LogLevel ERROR\nConnectTimeout 10\n" % self.folder)
        with open(os.path.join(self.folder, "hosts"), "w", encoding="utf-8") as file:
            file.write("127.0.0.1 localhost\n")
            for i, name in enumerate(self.names):
                file.write("%s %s\n" % (self.address(i), name))

    def address(self, i):
        return "10.77.%d.%d" % (self.number, i + 1)

    def _host(self, i, name, wire):
        host = Host(name, self.address(i), self.folder, os.path.join(self.folder, "hosts"))
        if wire is None:
            command("ip", "link", "add", "cable-" + name, "type", "veth", "peer", "name", "eth0", "netns",
                    str(host.pid))
        else:
            self.wires.append(Wire("cable-" + name, "far-" + name, **wire))
            command("ip", "link", "set", "far-" + name, "name", "eth0", "netns", str(host.pid))
        command("ip", "link", "set", "cable-" + name, "master", self.switch, "up")
        host.do("ip", "address", "add", self.address(i) + "/24", "dev", "eth0")
        host.do("ip", "link", "set", "eth0", "up")
        host.ready()
        return host

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for host in self.hosts:
            host.kill()
        for wire in self.wires:
            wire.close()
        command("ip", "link", "delete", self.switch)
        shutil.rmtree(self.folder)

    def where(self, per_host):
        """mpirun's word for the hosts and their slots."""
        return ",".join("%s:%d" % (name, per_host) for name in self.names)

    def mpirun(self, ranks, arguments, interface="eth0", mca=(), program=None, variables=()):
        """The command line, on node1, that starts ferry (or program) with these arguments over all hosts; variables:
        "NAME=value" each."""
        options = ["--oversubscribe", "--host", self.where(-(-ranks // len(self.names))), "-n", str(ranks),
                   "--mca", "plm_rsh_args", "-F " + self.config]
        if interface:
            options += ["--mca", "btl_tcp_if_include", interface, "--mca", "oob_tcp_if_include", interface]
        for variable in (running.STARTS, *variables):
            options += ["-x", variable]
        for name, value in dict(mca).items():
            options += ["--mca", name, str(value)]
        return [running.MPIRUN, *options, *running.RANK, *(program or [running.FERRY]), *arguments]

    def start(self, ranks, arguments, launch=None, env=None, **options):
        """A Job under bare mpirun, or, with launch (its options), under tests/cluster/launch."""
        words = self.mpirun(ranks, arguments, **options)
        if launch is not None:
            words = [sys.executable, LAUNCH, *launch, "--", *words]
        return Job(self, words, env)

    def run(self, ranks, arguments, timeout=60, **options):
        return self.start(ranks, arguments, **options).finish(timeout)


class Job(running.Run):
    """A command under way on a cluster's first host; its processes are all that run on the hosts, sshd and init
    excepted.  So a cluster has one job at a time."""

    def __init__(self, cluster, words, env=None):
        self.cluster = cluster
        self.where = {}  # pid: its host's name
        super().__init__(cluster.hosts[0].enter(*words), extra_env=env)

    def pids(self):
        found = {pid: host.name for host in self.cluster.hosts for pid in host.jobs()}
        self.where.update(found)
        return list(found)

    def named(self, name):
        """The pids of its processes of that name."""
        return [pid for pid in self.pids() if running._stat(pid)[0] == name]

    def finish(self, timeout=120, grace=4.0):
        """Like Run's; what is left carries the name of its host."""
        result = super().finish(timeout, grace)
        result.left = ["%s on %s" % (entry, self.where.get(int(entry.split()[0]))) for entry in result.left]
        return result


# ---- inside a host -------------------------------------------------------------------------------------


def mount_folders(keep, names):
    """Memory of its own for /tmp, /dev/shm and /run; what the host must see below /tmp is put back there."""
    stage = "/run"
    command("mount", "-t", "tmpfs", "none", stage)
    for path in keep:
        os.makedirs(stage + path[len("/tmp"):], exist_ok=True)
        command("mount", "--bind", path, stage + path[len("/tmp"):])
    command("mount", "--rbind", stage, "/tmp")
    command("mount", "-t", "tmpfs", "none", "/run")
    command("mount", "-t", "tmpfs", "none", "/dev/shm")
    command("mount", "--bind", names, "/etc/hosts")
    os.chmod("/tmp", 0o1777)
    os.chmod("/dev/shm", 0o1777)


def start_sshd(folder):
    os.makedirs("/run/sshd", 0o755)
    command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/run/host_key")
    with open("/run/sshd_config", "w", encoding="utf-8") as file:
        file.write("HostKey /run/host_key\nPidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
                   "StrictModes no\nAuthorizedKeysFile %s/user.pub\nMaxStartups 100\n" % folder)
    with open("/run/sshd.log", "w", encoding="utf-8") as log:
        subprocess.Popen([tool("sshd"), "-D", "-e", "-f", "/run/sshd_config"], stdin=subprocess.DEVNULL, stdout=log,
                         stderr=log)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", 22), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    with open("/run/sshd.log", encoding="utf-8") as log:
        raise RuntimeError("sshd does not listen: " + log.read())


def init(name, folder, names, *keep):
    """Process 1 of a host: sets it up, then reaps whatever ends on it."""
    socket.sethostname(name)
    command("ip", "link", "set", "lo", "up")
    mount_folders(keep, names)
    print("made", flush=True)
    start_sshd(folder)
    print("ready", flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__" and sys.argv[1:2] == ["init"]:
    init(*sys.argv[2:])
