"""A disk that loses what was not flushed, for scripts/vm/power.sh: an NBD server for one client. Usage: disk.py SOCKET IMAGE SEED

A write stays in memory until the client asks for a flush, or for this write to be durable (FUA). When the client's
connection ends without a word, its power has failed: of what is still in memory, any sectors reach the image, one by one,
in no order, and the rest is lost.

Source: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
"""
import os
import random
import socket
import struct
import sys

SECTOR = 512
HAS_FLAGS, SEND_FLUSH, SEND_FUA = 1, 4, 8
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1
OPTION_ABORT, OPTION_INFO, OPTION_GO = 2, 6, 7
ACK, INFO, UNSUPPORTED = 1, 3, (1 << 31) + 1
EINVAL = 22


class Disk:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR)
        self.size = os.fstat(self.fd).st_size
        self.unflushed = {}

    def read(self, offset, length):
        data = bytearray(os.pread(self.fd, length, offset))
        first, last = offset // SECTOR, (offset + length) // SECTOR
        for sector in range(first, last) if last - first < len(self.unflushed) else list(self.unflushed):
            if first <= sector < last and sector in self.unflushed:
                at = (sector - first) * SECTOR
                data[at : at + SECTOR] = self.unflushed[sector]
        return bytes(data)

    def write(self, offset, data, durable):
        first = offset // SECTOR
        for n in range(len(data) // SECTOR):
            if durable:
                self.unflushed.pop(first + n, None)
            else:
                self.unflushed[first + n] = data[n * SECTOR : (n + 1) * SECTOR]
        if durable:
            os.pwrite(self.fd, data, offset)

    def flush(self):
        for sector, data in self.unflushed.items():
            os.pwrite(self.fd, data, sector * SECTOR)
        self.unflushed.clear()

    def power_failure(self, chance):
        """Most sectors, few, or none."""
        share = chance.choice([0, 0.1, 0.5, 0.9])
        kept = [sector for sector in self.unflushed if chance.random() < share]
        for sector in kept:
            os.pwrite(self.fd, self.unflushed[sector], sector * SECTOR)
        print(f"{len(self.unflushed)} sectors were not flushed, {len(kept)} of them are kept", flush=True)


def receive(client, length):
    parts = []
    while length:
        part = client.recv(min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def agree(client, disk):
    """The handshake; false: the client only wanted to look."""
    client.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    receive(client, 4)

    def reply(option, kind, data=b""):
        client.sendall(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data)

    while True:
        _, option, length = struct.unpack(">QII", receive(client, 16))
        receive(client, length)
        if option in (OPTION_INFO, OPTION_GO):
            reply(option, INFO, struct.pack(">HQH", 0, disk.size, HAS_FLAGS | SEND_FLUSH | SEND_FUA))
            reply(option, ACK)
            if option == OPTION_GO:
                return True
        elif option == OPTION_ABORT:
            reply(option, ACK)
            return False
        else:
            reply(option, UNSUPPORTED)


def serve(client, disk):
    """Until the client says goodbye. Raises EOFError, or another error of the socket, where it just goes."""
    while True:
        _, flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", receive(client, 28))
        data = receive(client, length) if kind == WRITE else b""
        answer, error = b"", 0
        aligned = offset % SECTOR == 0 and length % SECTOR == 0 and offset + length <= disk.size
        if kind == DISCONNECT:
            return
        if kind == FLUSH:
            disk.flush()
        elif kind == READ and aligned:
            answer = disk.read(offset, length)
        elif kind == WRITE and aligned:
            disk.write(offset, data, flags & FUA)
        else:
            error = EINVAL
        client.sendall(struct.pack(">IIQ", 0x67446698, error, cookie) + answer)


def main():
    path, image, seed = sys.argv[1:]
    disk = Disk(image)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        while True:
            client, _ = listener.accept()
            try:
                if agree(client, disk):
                    serve(client, disk)
                    disk.flush()
                    print("switched off in good order", flush=True)
                    return
            except (EOFError, OSError):
                disk.power_failure(random.Random(seed))
                return


main()
