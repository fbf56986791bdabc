"""Takes the pictures of the console's pages about structures and runs: python tools/understand_pictures.py."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from weft.server.config import BrokerConfig, GatewayConfig
from weft.testing import broker
from weftlab.mobility.campaign import NetworkSettings, prepared
from weftlab.mobility.recorded import record_run
from weftlab.mobility.script import busy
from weftlab.mobility.topology import find_topology
from weftlab.ring.recorded import record_ring
from weftlab.ring.ring_comparison import RingOptions, designs
from weftlab.ring.ring_workload import RingWorkloadSettings, ring_workload

FOLDER = Path(__file__).parent.parent / "docs" / "console"
PAGES = {  # address, height, and what is to be read before the picture is taken
    "orders": ("/orders?n=200&mark=139", 1420, "step 200 of 200"),
    "space": ("/space?n=9&show=boxes+curve+ranges+negative&point=30,40", 1130, "An event at the point"),
    "context": ("/context?mark=Q8", 960, "step 32 of 32"),
    "runs": ("/runs/weft?step=241&other=acyclic&broker=0", 1060, "step 241 of"),
    "ring": ("/ring?topic=t3&node=n1231", 960, "answers for keys"),
}


def record(folder: Path) -> None:
    """Record the runs that the player and the ring show."""
    scene = prepared(NetworkSettings(find_topology("campus")), busy(moves=12), 1)
    for protocol in ("weft", "acyclic"):
        record_run(protocol, *scene, folder / f"{protocol}.weftrun")
    workload = ring_workload(RingWorkloadSettings(nodes=64, subscriptions=200, events=50), 1)
    record_ring(workload, "topic groups", designs(RingOptions())["topic groups"], 1, folder / "ring.weftrun")


def main() -> None:
    """Take all pictures, or those that are named."""
    with TemporaryDirectory() as runs, sync_playwright() as play:
        record(Path(runs))
        browser = play.chromium.launch(executable_path=shutil.which("chromium"))
        with broker(gateway=True, config=BrokerConfig(gateway=GatewayConfig(runs=Path(runs)))) as local:
            for name in sys.argv[1:] or PAGES:
                address, height, text = PAGES[name]
                page = browser.new_page(viewport={"width": 1200, "height": height})
                page.goto(f"{local.gateway}/ui{address}")
                page.get_by_text(text).first.wait_for()
                page.wait_for_selector("body[data-ready]")
                page.screenshot(path=FOLDER / f"{name}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
