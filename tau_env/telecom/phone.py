"""The user's phone and where it is: what its settings make of signal, data, speed and picture messages.

Nothing here looks at the company. What the phone knows of it (is the line active, may it roam, is the data used up) is
copied to `Surroundings` after each call, and reaches the phone's connection only when it searches for a network again:
that is why upstream's gold reboots after a line was resumed.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal

from tau_env import source

MODES = ("4g_5g_preferred", "4g_only", "3g_only", "2g_only")
PERMISSIONS = ("sms", "storage", "phone", "network")
"""What an app may be allowed; results list them in this order."""

SIGNALS: Mapping[str, str] = {"2G": "poor", "3G": "fair", "4G": "good", "5G": "excellent"}
"""How strong each network is where the user is; the same everywhere."""

_FIXED = {"4g_only": "4G", "3g_only": "3G", "2g_only": "2G"}
_BARS = {
    "none": "📵 No Signal",
    "poor": "📶¹ Poor",
    "fair": "📶² Fair",
    "good": "📶³ Good",
    "excellent": "📶⁴ Excellent",
}
_SPEEDS = {"2G": (0.1, 0.4), "3G": (1.0, 5.0), "4G": (10.0, 100.0), "5G": (50.0, 500.0)}
_SHARES = {"poor": 0.2, "fair": 0.5, "good": 0.8, "excellent": 1.0}
_GRADES = ((1, "Very Poor"), (5, "Poor"), (25, "Fair"), (100, "Good"))


def on(value: bool) -> str:
    """A switch in words."""
    return "ON" if value else "OFF"


@dataclass(frozen=True, slots=True)
class Apn:
    """The access point; the defaults are the working ones."""

    apn_name: Literal["internet", "broken"] = "internet"
    reset_at_reboot: bool = False
    mms_apn: str | None = "mms"
    mmsc_url: str | None = "http://mms.carrier.com/mms/wapenc"
    mms_proxy: str | None = None
    mms_port: int | None = None


@dataclass(frozen=True, slots=True)
class Vpn:
    """A connection to a VPN server."""

    server_address: str | None = "192.168.1.1"
    protocol: str | None = "OpenVPN"
    server_performance: str = "excellent"


@dataclass(frozen=True, slots=True)
class PaymentRequest:
    """A bill that the agent asks the user to pay."""

    bill_id: str
    amount_due: float
    paid: bool = False


@dataclass(slots=True)
class Surroundings:
    """Where the user is, and what the company lets the phone do."""

    name: str | None = None
    phone_number: str | None = None
    is_abroad: bool = False
    roaming_allowed: bool = False
    mobile_data_usage_exceeded: bool = False
    line_active: bool = True
    payment_request: PaymentRequest | None = None


@dataclass(slots=True)
class Phone:
    """The phone. Every value is immutable or replaced as a whole, so that copies may share them."""

    sim_card_status: str = "active"
    sim_card_missing: bool = False
    airplane_mode: bool = False
    network_signal_strength: str = "good"
    network_technology_connected: str = "5G"
    network_connection_status: str = "connected"
    battery_level: int = 80
    data_enabled: bool = True
    roaming_enabled: bool = False
    network_mode_preference: str = MODES[0]
    active_apn_settings: Apn = Apn()
    wifi_enabled: bool = False
    wifi_connected: bool = False
    wifi_ssid: str | None = None
    wifi_signal_strength: str = "none"
    wifi_calling_enabled: bool = False
    wifi_calling_mms_over_wifi: bool = False
    data_saver_mode: bool = False
    vpn_enabled_setting: bool = False
    vpn_connected: bool = False
    vpn_details: Vpn | None = None
    app_statuses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What each app is allowed."""

    @property
    def sim_status(self) -> str:
        """`missing`, or what the card says."""
        return "missing" if self.sim_card_missing else self.sim_card_status

    def search(self, around: Surroundings) -> None:
        """Looks for a network: connection, technology and strength follow from the settings of this moment."""
        if (
            self.sim_status != "active"
            or self.airplane_mode
            or self.active_apn_settings.apn_name == "broken"
            or not around.line_active
        ):
            self.network_connection_status = "no_service"
            self.network_technology_connected = self.network_signal_strength = "none"
            return
        technology = _FIXED.get(self.network_mode_preference, "5G")
        if technology == "5G" and SIGNALS.get("5G", "none") == "none":
            technology = "4G"
        self.network_connection_status = "connected"
        self.network_technology_connected = technology
        self.network_signal_strength = SIGNALS.get(technology, "none")

    def has_data(self, around: Surroundings) -> bool:
        """Whether mobile data works."""
        return not (
            self.airplane_mode
            or self.network_signal_strength == "none"
            or self.network_connection_status == "no_service"
            or (around.is_abroad and not (self.roaming_enabled and around.roaming_allowed))
            or not self.data_enabled
            or around.mobile_data_usage_exceeded
        )

    def speed(self, around: Surroundings) -> tuple[float, str] | None:
        """Megabits a second and what they are called; None without mobile data."""
        if not self.has_data(around):
            return None
        slow = self.vpn_details is not None and self.vpn_details.server_performance == "poor"
        factor = 0.1 if slow else 1.0
        if self.data_saver_mode:
            factor *= 0.2
        low, high = _SPEEDS.get(self.network_technology_connected, (0.0, 0.0))
        share = _SHARES.get(self.network_signal_strength, 0.0)
        speed = round((low + high) / 2.0 * share * factor, 2)
        return speed, next((name for limit, name in _GRADES if speed < limit), "Excellent")

    def can_send_mms(self, around: Surroundings) -> bool:
        """Whether the messaging app could send a picture."""
        return (
            self.has_data(around)
            and self.network_technology_connected != "2G"
            and not (self.wifi_calling_enabled and self.wifi_calling_mms_over_wifi)
            and self.active_apn_settings.mmsc_url is not None
            and self.app_statuses.get("messaging", frozenset()) >= {"storage", "sms"}
        )

    def set_airplane_mode(self, on: bool, around: Surroundings) -> None:
        """Airplane mode drops Wi-Fi, and the VPN with it when it begins."""
        self.airplane_mode = on
        if on or self.wifi_enabled:
            self.drop_wifi()
        if on:
            self.disconnect_vpn()
        self.search(around)

    def drop_wifi(self) -> None:
        """No Wi-Fi network any more; the radio stays as it is."""
        self.wifi_connected, self.wifi_ssid, self.wifi_signal_strength = False, None, "none"

    def disconnect_vpn(self) -> bool:
        """Whether there was a connection to end."""
        was = self.vpn_connected
        if was:
            self.vpn_connected, self.vpn_details = False, None
        return was

    def status_bar(self) -> str:
        """The icons at the top of the screen."""
        icons = ["✈️ Airplane Mode"] if self.airplane_mode else self._network_icons()
        if self.wifi_enabled and self.wifi_connected:
            icons.append(f"📡 Connected to {self.wifi_ssid}" if self.wifi_ssid else "📡 Enabled")
        if self.vpn_connected:
            icons.append("🔒 VPN Connected")
        icons.append(f"🔋 {self.battery_level}%")
        return "Status Bar: " + " | ".join(icons)

    def _network_icons(self) -> list[str]:
        icons = [_BARS.get(self.network_signal_strength, "📵 No Signal")]
        technology = self.network_technology_connected
        if technology != "none":
            icons.append(technology)
        if technology == "none" or not self.data_enabled:
            return [*icons, "📵 Data Disabled"]
        return [*icons, "📱 Data Enabled", *(["🔽 Data Saver"] if self.data_saver_mode else [])]

    def dump(self) -> dict[str, Any]:
        """All fields, as upstream's database would show them."""
        apps = {
            name: {"app_name": name, "permissions": {each: each in allowed for each in PERMISSIONS}}
            for name, allowed in self.app_statuses.items()
        }
        return {**asdict(self), "app_statuses": apps}


def open_phone() -> Phone:
    """The phone before anything has happened, for one episode."""
    return replace(_phone())


@cache
def _phone() -> Phone:
    device = tomllib.loads(source.read("domains/telecom/user_db.toml").decode())["device"]
    apps = {
        name: frozenset(each for each in PERMISSIONS if app["permissions"].get(each))
        for name, app in device.pop("app_statuses").items()
    }
    return Phone(**{**device, "active_apn_settings": Apn(**device["active_apn_settings"])}, app_statuses=apps)
