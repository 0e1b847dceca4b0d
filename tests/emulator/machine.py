"""A machine in software: boots a Linux kernel in Bochs, on any processor that Bochs knows, runs commands there.

Nothing is installed or mounted: kernel, programs and libraries go into one image that lies in the machine's memory when
it starts (loader.s), so there is no firmware, no boot loader, no disk.  The guest speaks over its serial line, which is
a file here; Bochs wants a terminal, which is a pseudo-terminal here.
"""

import ctypes
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import running

KERNEL = os.environ.get("FERRY_KERNEL", "")
MEMORY = 256 << 20
IMAGE = 16 << 20  # where the image lies, above what old hardware uses
PAGE = 4096
# What a kernel would do at length and nobody here needs, or what Bochs 2.7 gets wrong.
ARGUMENTS = (
    "console=ttyS0,115200 quiet loglevel=2 panic=-1 reboot=t "
    "noxsaves clearcpuid=xsavec "  # Bochs names a wrong size for the compacted layout, and Linux then gives up AVX
    "acpi=off nolapic noapic nosmp lpj=100000 "  # there is no firmware that would describe these
    "i8042.nokbd i8042.noaux i8042.nopnp nokaslr mitigations=off random.trust_cpu=on "
    "cryptomgr.notests initcall_blacklist=load_system_certificate_list,cubictcp_register")
# Ticks of the emulated clock are instructions: few a second make the serial line quick.
BOCHSRC = """\
plugin_ctrl: unmapped=1, biosdev=0, speaker=0, extfpuirq=1, parallel=0, serial=1, gameport=0, iodebug=0
config_interface: textconfig
display_library: term
memory: guest={memory}, host={memory}
romimage: file={folder}/rom
vgaromimage: file={folder}/vgarom
optramimage1: file={folder}/image, address={image:#x}
cpu: model={model}, count=1, ips=50000000, reset_on_triple_fault=0
clock: sync=none, time0=1700000000
com1: enabled=1, mode=file, dev={folder}/serial
log: {folder}/log
panic: action=fatal
error: action=ignore
info: action=report
debug: action=ignore
"""
INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ {environment}
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp
mount -t tmpfs shm /dev/shm
exec >/dev/ttyS0 2>&1 </dev/null
stty -F /dev/ttyS0 115200 -onlcr
hostname emulated
ifconfig lo 127.0.0.1 up
cd /tmp
sh /commands
echo @end
stty -F /dev/ttyS0 57600
reboot -f
"""


def missing():
    """Why no machine can be emulated here, or None."""
    for tool in ("bochs", "busybox", "as", "ld", "ldd"):
        if not shutil.which(tool):
            return "no %s here" % tool
    if subprocess.run(["ldd", shutil.which("busybox")], capture_output=True).returncode == 0:
        return "busybox is not a static one here"
    if not os.path.exists(KERNEL):
        return "no Linux kernel to boot: FERRY_KERNEL names none (scripts/setup --tests gets one)"
    return None


def libraries(program):
    """The shared libraries that a program is started with."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(?:=> |^\s+)(/\S+) \(", told, re.M)


def end_with_parent():
    """Bochs lives on after SIGTERM; so it is killed when the test is gone, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Machine:
    """One image and the processors to start it on."""

    def __init__(self, environment=None):
        self.folder = running.scratch("machine")
        self.environment = dict(environment or {})
        self.files = {}
        self.add("/bin/busybox", shutil.which("busybox"))

    def add(self, there, here, with_libraries=True):
        """The file, or all of the folder, here becomes that there; a program's libraries come with it."""
        if os.path.isdir(here):
            for name in sorted(os.listdir(here)):
                self.add(there + "/" + name, os.path.join(here, name))
            return
        with open(here, "rb") as file:
            self.files[there] = (file.read(), 0o755)
        if with_libraries and self.files[there][0].startswith(b"\x7fELF"):
            for library in libraries(here):
                if library not in self.files:
                    self.add(library, library)

    def write(self, there, text):
        self.files[there] = (text.encode(), 0o755)

    def archive(self):
        """The files as the kernel unpacks them at its start: cpio, new format."""
        entries = {"init": self.files["/init"]}
        for folder in ("proc", "sys", "dev", "tmp", "bin"):
            entries[folder] = (b"", None)
        for path, entry in self.files.items():
            parts = path.strip("/").split("/")
            for depth in range(1, len(parts)):
                entries.setdefault("/".join(parts[:depth]), (b"", None))
            entries["/".join(parts)] = entry
        out = []
        for number, path in enumerate(sorted(entries) + ["TRAILER!!!"], 1):
            data, mode = entries.get(path, (b"", 0))
            mode = 0o040755 if mode is None else 0o100000 | mode
            name = path.encode() + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
            head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
            out += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]
        return b"".join(out)

    def assemble(self):
        """The image: boot parameters, the kernel's arguments, the archive, the kernel; and the firmware that starts it.
        Linux's Documentation/arch/x86/boot.rst names the fields."""
        with open(KERNEL, "rb") as file:
            kernel = file.read()
        archive = self.archive()
        alignment, = struct.unpack_from("<I", kernel, 0x230)
        entry = IMAGE + 2 * PAGE + len(archive)
        entry += -entry % alignment
        head = bytearray(PAGE)
        header_end = 0x202 + kernel[0x201]
        head[0x1f1:header_end] = kernel[0x1f1:header_end]
        head[0x210] = 0xff  # the loader is none of those that have a number
        struct.pack_into("<III", head, 0x214, entry, IMAGE + 2 * PAGE, len(archive))
        struct.pack_into("<I", head, 0x228, IMAGE + PAGE)
        head[0x1e8] = 2  # stretches of memory
        struct.pack_into("<QQIQQI", head, 0x2d0, 0, 0x9f000, 1, 1 << 20, MEMORY - (1 << 20), 1)
        body = bytes(head) + ARGUMENTS.encode().ljust(PAGE, b"\0") + archive
        body = body.ljust(entry - IMAGE, b"\0") + kernel[((kernel[0x1f1] or 4) + 1) * 512:]
        self.write_file("image", body)
        self.write_file("vgarom", b"\x55\xaa\x01".ljust(512, b"\0"))
        symbols = {"image": IMAGE, "image_end": IMAGE + len(body), "parameters": IMAGE, "entry": entry}
        values = [text for name, value in symbols.items() for text in ("--defsym", "%s=%#x" % (name, value))]
        subprocess.run(["as", "--64", *values, "-o", self.path("rom.o"), os.path.join(HERE, "loader.s")], check=True)
        subprocess.run(["ld", "-m", "elf_x86_64", "-Ttext", "0xf0000", "-e", "0xf0000", "--oformat", "binary",
                        "-o", self.path("rom"), self.path("rom.o")], check=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_file(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def run(self, model, commands, timeout=600):
        """Start it on a processor and run shell commands there, one after the other.  [(exit status, what it wrote)],
        as many as have ended by timeout seconds (times running.PATIENCE); and what went wrong, or ""."""
        script = ["echo @begin\n(%s)\necho @done $?" % command for command in commands]
        self.write("/commands", "\n".join(script) + "\n")
        words = " ".join("%s='%s'" % item for item in self.environment.items())
        self.write("/init", INIT.format(environment=words))
        self.assemble()
        self.write_file("serial", b"")
        self.write_file("bochsrc", BOCHSRC.format(folder=self.folder, image=IMAGE, model=model,
                                                  memory=MEMORY >> 20).encode())
        self.write_file("debugger", b"c\nq\n")
        trouble = self.emulate(timeout * running.PATIENCE)
        with open(self.path("serial"), encoding="utf-8", errors="replace") as file:
            told = file.read().replace("\r\n", "\n")
        results = re.findall(r"@begin\n(.*?)@done (\d+)\n", told, re.S)
        if len(results) < len(commands):
            trouble = "%s; the guest's last words:\n%s\n--- Bochs\n%s" % (trouble or "it stopped", told[-3000:],
                                                                         self.tail("log"))
        else:
            trouble = ""
        return [(int(code), text) for text, code in results], trouble

    def tail(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read()[-2000:]
        except OSError:
            return "(nothing)"

    def emulate(self, timeout):
        """Bochs from its start to the guest's last word, or to the end of the time."""
        command = ["bochs", "-q", "-f", self.path("bochsrc")]
        # Built with its debugger, as Debian's is, it waits for somebody to say "continue".
        usage = subprocess.run(["bochs", "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=60, check=False)
        if b"-rc" in usage.stdout:
            command[2:2] = ["-rc", self.path("debugger")]
        master, slave = pty.openpty()
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=self.folder,
                                   env=dict(os.environ, TERM="xterm"), preexec_fn=end_with_parent)
        os.close(slave)
        deadline = time.monotonic() + timeout
        screen = b""
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    return "not done after %d s" % timeout
                if select.select([master], [], [], 0.2)[0]:
                    try:
                        screen += os.read(master, 65536)
                    except OSError:
                        pass  # it has closed its terminal
                with open(self.path("serial"), "rb") as file:
                    if b"@end" in file.read():
                        return ""
            return "Bochs ended with %d: %s" % (process.returncode, screen[-1000:].decode(errors="replace"))
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(master)
