"""A SuperLink with TLS and authenticated nodes on this machine, for tests and for `benchmarks/federation_seconds.py`."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

# The programs of Flower and fedsa are those of this environment.
BIN = Path(sys.executable).parent

# Debian has it where only root's path leads.
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin") or "nginx"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Federation:
    """Processes on this machine.

    `configured` is the configuration of a node by its number, and `more` are variables of their environment.
    """

    def __init__(self, folder: Path, nodes: int, configured: Callable[[int], str], more: Mapping[str, str] = {}) -> None:
        self.folder, self.port, self.simulation_port = folder, free_port(), free_port()
        # The port to which nodes connect: that of the SuperLink, or of nginx.
        self.nodes_port = self.port
        self.nodes, self.configured = nodes, configured
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        home = folder / "flwr"
        home.mkdir()
        self.env = {
            **os.environ,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            **more,
        }
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\nroot-certificates = "{folder / "ca.crt"}"\n'
            f'[superlink.simulation]\naddress = "127.0.0.1:{self.simulation_port}"\ninsecure = true\n'
        )
        self._certificates()

    def call(self, *args: str, timeout: float = 120.0) -> str:
        done = subprocess.run(args, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{args}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, name: str, *args: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(args, cwd=self.folder, env=self.env, stdout=log, stderr=log, start_new_session=True)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, name: str) -> None:
        """Kill a process and its children with signal 9."""
        process = self.processes.pop(name)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def stop(self, name: str) -> None:
        """Stop a process as people do, so that it can say goodbye."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60.0)

    @contextmanager
    def running(self, nodes: int) -> Iterator[Federation]:
        """The same with its SuperLink and its first nodes started, all nodes registered; all processes end afterwards."""
        try:
            self.superlink()
            self.register()
            for number in range(nodes):
                self.node(number)
            yield self
        finally:
            self.end()

    def end(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def wait(self, what: str, holds: Callable[[], bool], seconds: float = 90.0) -> None:
        ends = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > ends:
                logs = "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log"))
                raise AssertionError(f"{what} did not happen in {seconds} s\n{logs}")
            time.sleep(0.1)

    def _certificates(self) -> None:
        """A certificate of the server by an authority of our own, and a key for each node, in the form of `ssh-keygen`."""
        authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("test", "server")]
        now = datetime.datetime.now(datetime.timezone.utc)

        def signed(of: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType) -> bytes:
            builder = x509.CertificateBuilder().subject_name(of).issuer_name(names[0]).public_key(key.public_key())
            builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=2))
            return builder.add_extension(extension, critical=False).sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)

        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        (self.folder / "ca.crt").write_bytes(signed(names[0], authority, x509.BasicConstraints(ca=True, path_length=None)))
        (self.folder / "server.pem").write_bytes(signed(names[1], server, address))
        (self.folder / "server.key").write_bytes(server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        (self.folder / "other.crt").write_bytes(signed(names[0], server, x509.BasicConstraints(ca=True, path_length=None)))
        # The last key is of a node that nobody registers.
        for node in range(self.nodes + 1):
            key = ec.generate_private_key(ec.SECP384R1())
            (self.folder / f"node{node}").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
            (self.folder / f"node{node}.pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))

    def superlink(self) -> None:
        tls = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"]
        self._listening("superlink", self.port, *tls, "--enable-supernode-auth", "--database", "superlink.db")

    def simulation(self) -> None:
        """Start a SuperLink whose nodes are simulated."""
        self._listening("simulation", self.simulation_port, "--simulation", "--insecure")

    def _listening(self, name: str, port: int, *args: str) -> None:
        self.start(name, "flower-superlink", *args, "--disable-runtime-dependency-installation", "--port", str(port))

        self._listens(name, port)

    def _listens(self, name: str, port: int) -> None:
        def listens() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        self.wait(f"the server `{name}`", listens)

    def nginx(self, app: Path) -> None:
        """Start nginx with the configuration of an app; nodes that start later connect to it."""
        self.nodes_port = free_port()
        served = (app / "nginx.conf").read_text().replace("listen 9092", f"listen 127.0.0.1:{self.nodes_port}")
        (self.folder / "site.conf").write_text(served.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}"))
        # Files that nginx writes are in the folder, so that no other user needs to start it.
        files = "".join(f"{kind}_temp_path {kind};" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi"))
        (self.folder / "nginx.conf").write_text(f"daemon off; pid nginx.pid; events {{}} http {{ access_log off; {files} include site.conf; }}\n")
        self.start("nginx", NGINX, "-p", str(self.folder), "-c", "nginx.conf")
        self._listens("nginx", self.nodes_port)

    def register(self) -> None:
        for node in range(self.nodes):
            self.call("flwr", "supernode", "register", f"node{node}.pub", "here")

    def node(self, number: int, certificate: str = "ca.crt") -> None:
        """Start a node."""
        ports = ["--superlink", f"127.0.0.1:{self.nodes_port}", "--port", str(free_port())]
        keys = ["--root-certificates", certificate, "--auth-supernode-private-key", f"node{number}"]
        self.start(f"node{number}", "flower-supernode", *keys, *ports, "--node-config", self.configured(number))

    def app(self, name: str, settings: str) -> Path:
        """The app of these settings, as `fedsa federation new` writes it."""
        (self.folder / f"{name}.toml").write_text(settings)
        self.call("fedsa", "federation", "new", name, "--settings", f"{name}.toml", "--agents", str(self.nodes))
        return self.folder / name

    def run(self, name: str, app: Path) -> None:
        """Begin a run; its log is that of this name."""
        self.start(name, "flwr", "run", str(app), "here", "--stream")
