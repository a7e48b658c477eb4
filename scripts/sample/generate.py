"""Makes the sample logs that the demo uses when it is given no files. Run it again and the same bytes come out.

    python scripts/sample/generate.py          writes shop_1.txt, shop_2.txt (six columns, topics T-1 to T-3) and access.log beside itself
"""

from __future__ import annotations

import random
from pathlib import Path

HERE = Path(__file__).parent
LINES = 1_000
LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR")
PATHS = ("/", "/cart", "/cart/items", "/login", "/orders", "/orders/open", "/search?q=tea", "/search?q=blue%20kettle", "/static/app.css")
AGENTS = ("curl/8.5", "Mozilla/5.0 (X11; Linux)", "shop-app/3.1 (ünïcode)", "healthcheck")


def clock(seconds: int) -> str:
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def shop(producer: int, rng: random.Random) -> bytes:
    """time, level, empty, producer-sequence, empty, topic: separated by tabs."""
    second, lines = 36_000 + producer, []
    for number in range(1, LINES + 1):
        second += rng.randrange(3)
        lines.append("\t".join((clock(second), rng.choice(LEVELS), "", f"P{producer}-{number}", "", f"T-{rng.choice((1, 2, 2, 3))}")))
    return "".join(line + "\n" for line in lines).encode()


def access(rng: random.Random) -> bytes:
    """A web server's log with the awkward things that real ones have: CR at some ends, an empty line, bytes that are no UTF-8, no LF at the end."""
    second, lines = 50_000, []
    for number in range(1, LINES + 1):
        second += rng.randrange(4)
        line = (f'192.0.2.{rng.randrange(1, 255)} - - [14/Mar/2026:{clock(second)} +0000] "GET {rng.choice(PATHS)} HTTP/1.1" '
                f'{rng.choice((200, 200, 200, 304, 404, 500))} {rng.randrange(90_000)} "{rng.choice(AGENTS)}" {number}').encode()
        if number % 97 == 0:
            line += b"\r"
        if number % 250 == 0:
            line = b"\xff\xfe raw bytes \x00 " + line
        lines.append(b"" if number == 500 else line)
    return b"\n".join(lines)


def main() -> None:
    for producer in (1, 2):
        (HERE / f"shop_{producer}.txt").write_bytes(shop(producer, random.Random(producer)))
    (HERE / "access.log").write_bytes(access(random.Random(3)))


if __name__ == "__main__":
    main()
