"""What an operator may set of the warm pool's controller."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet import labels
from warmpool.providers.fate import Cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class KwokSettings:
    """How a cloud is played whose nodes kwok keeps; local clusters only. See warmpool.providers.fate.Cloud.

    Attributes:
        is_enabled: Whether pools may ask for provider `kwok`.
        launch_s: Mean time from order to launched, or to the refusal.
        register_s: Mean time from order to the Node.
        devices_s: Mean time from the Node to its devices.
        pull_s: Mean time from the pulling pod to the listed images.
        variation_ratio: Coefficient of variation of all times.
        shortage_ratio: Share of orders that are refused for lack of capacity.
        slow_pull_ratio: Share of machines that pull ten times as long.
        vanish_per_hour: Rate at which nodes are taken away.
        time_scale: How much faster than real time all of it runs.
        seed: Of all that.
    """

    is_enabled: bool = False
    launch_s: float = 30.0
    register_s: float = 284.0
    devices_s: float = 126.0
    pull_s: float = 101.0
    variation_ratio: float = 0.3
    shortage_ratio: float = 0.0
    slow_pull_ratio: float = 0.0
    vanish_per_hour: float = 0.0
    time_scale: float = 1.0
    seed: int = 0

    @property
    def cloud(self) -> Cloud:
        """Return the cloud that behaves so."""
        return Cloud(
            launch_s=self.launch_s,
            register_s=self.register_s,
            devices_s=self.devices_s,
            pull_s=self.pull_s,
            variation_ratio=self.variation_ratio,
            shortage_ratio=self.shortage_ratio,
            slow_pull_ratio=self.slow_pull_ratio,
            vanish_per_hour=self.vanish_per_hour,
            time_scale=self.time_scale,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPoolSettings:
    """Settings of the controller.

    Attributes:
        namespace: Where the leadership lease lives.
        store_namespace: Where each pool's history is kept.
        period_s: Longest time between two looks at a pool; what changes is looked at within a second.
        has_image_volumes: Pull by mounting images as volumes (Kubernetes 1.36 and newer); otherwise by init containers.
        fetch_image: Image with `berthmaster-fetch`, for pools that name models.
        moves_per_hour: Pods that may be moved off serving nodes to give these back.
        prometheus_url: Where the past of new pools can be asked for (spec.history.query); "" = nowhere.
        prometheus_token_file: File with a bearer token for it; "" = none.
        kwok: Nodes of local clusters.
    """

    namespace: str = labels.NAMESPACE
    store_namespace: str = labels.PULL_NAMESPACE
    period_s: float = 10.0
    has_image_volumes: bool = True
    fetch_image: str = ""
    moves_per_hour: int = 60
    prometheus_url: str = ""
    prometheus_token_file: str = ""
    kwok: KwokSettings = field(default_factory=KwokSettings)

    def problems(self) -> list[str]:
        """Return every problem, naming setting, bound and value."""
        found = []
        if not 1.0 <= self.period_s <= 60.0:
            found.append(f"period_s must be from 1 to 60, got {self.period_s:g}")
        if self.moves_per_hour < 0:
            found.append(f"moves_per_hour must be at least 0, got {self.moves_per_hour}")
        if self.prometheus_url and not self.prometheus_url.startswith(("http://", "https://")):
            found.append(f"prometheus_url must begin with http:// or https://, got {self.prometheus_url!r}")
        if self.prometheus_token_file and not self.prometheus_url:
            found.append("prometheus_token_file is set and prometheus_url is not")
        found += [f"kwok.{problem}" for problem in self.kwok.cloud.problems()]
        return found
