"""The nine fixed benchmark networks, each in a few lines.

Links join two subnets both ways. A firewall line `1>2 ssh` lets ssh through from subnet 1 to subnet 2; what is not
listed is shut. A host line reads: address, system, services, processes.
"""

from __future__ import annotations

from collections.abc import Mapping

from redline.worlds.nasim.rules.scenario import ROOT, USER, Address, AttackScenario, Escalation, Exploit, Host

SSH = Exploit("e_ssh", "ssh", "linux", 0.9, 3, USER)
FTP = Exploit("e_ftp", "ftp", "windows", 0.6, 1, ROOT)
FTP_AS_USER = Exploit("e_ftp", "ftp", "windows", 0.6, 1, USER)
HTTP = Exploit("e_http", "http", None, 0.9, 2, USER)
SAMBA = Exploit("e_samba", "samba", "linux", 0.3, 2, ROOT)
SMTP = Exploit("e_smtp", "smtp", "windows", 0.6, 3, USER)
TOMCAT = Escalation("pe_tomcat", "tomcat", "linux", 1.0, 1, ROOT)
DACLSVC = Escalation("pe_daclsvc", "daclsvc", "windows", 1.0, 1, ROOT)
SCHTASK = Escalation("pe_schtask", "schtask", "windows", 1.0, 1, ROOT)

SMALL_LINKS = "0-1 1-2 1-3 2-3 3-4"
SMALL_FIREWALL = """
    0>1 http
    1>2 ssh
    2>1 ssh
    3>1 ssh
    2>3 http
    3>2 ftp
    3>4 ssh,ftp
    4>3 ftp
"""


def _network(
    name: str,
    max_score: float,
    *,
    sensitive: str,
    exploits: tuple[Exploit, ...],
    escalations: tuple[Escalation, ...],
    links: str,
    firewall: str,
    hosts: str,
    os: tuple[str, ...] = ("linux", "windows"),
    step_limit: int = 1000,
    values: Mapping[Address, float] | None = None,
) -> AttackScenario:
    """A network as it is written below; a sensitive host is worth 100."""
    goals = tuple(_address(word) for word in sensitive.split())
    worth = {**dict.fromkeys(goals, 100.0), **(values or {})}
    machines = tuple(_host(line.split(), worth) for line in hosts.strip().splitlines())
    return AttackScenario(
        name=name,
        subnets=_sizes(machines),
        links=_links(links),
        os=os,
        services=tuple(exploit.service for exploit in exploits),
        processes=tuple(escalation.process for escalation in escalations),
        exploits=exploits,
        escalations=escalations,
        hosts=machines,
        sensitive=goals,
        firewall=dict(_opening(line.split()) for line in firewall.strip().splitlines()),
        step_limit=step_limit,
        max_score=max_score,
    )


def _address(text: str) -> Address:
    subnet, _, number = text.partition(".")
    return int(subnet), int(number)


def _host(words: list[str], worth: Mapping[Address, float]) -> Host:
    address, os, services, processes = (*words, "")[:4]
    return Host(
        _address(address), os, _names(services), _names(processes), worth.get(_address(address), 0.0)
    )  # fmt: skip


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def _sizes(hosts: tuple[Host, ...]) -> tuple[int, ...]:
    """Hosts in each subnet, the internet first."""
    count = max(host.address[0] for host in hosts)
    return (1, *(sum(host.address[0] == subnet for host in hosts) for subnet in range(1, count + 1)))


def _links(text: str) -> frozenset[tuple[int, int]]:
    pairs = [tuple(map(int, word.split("-"))) for word in text.split()]
    both_ways = {(a, b) for a, b in pairs} | {(b, a) for a, b in pairs}
    return frozenset(both_ways | {(a, a) for a, _ in both_ways})


def _opening(words: list[str]) -> tuple[tuple[int, int], frozenset[str]]:
    source, _, target = words[0].partition(">")
    return (int(source), int(target)), _names(words[1])


FIXED = {
    scenario.name: scenario
    for scenario in (
        _network(
            "tiny",
            195,
            sensitive="2.0 3.0",
            os=("linux",),
            exploits=(Exploit("e_ssh", "ssh", "linux", 0.8, 1, USER),),
            escalations=(TOMCAT,),
            links="0-1 1-2 1-3 2-3",
            firewall="""
                0>1 ssh
                2>1 ssh
                1>3 ssh
                3>1 ssh
                2>3 ssh
                3>2 ssh
            """,
            hosts="""
                1.0 linux ssh tomcat
                2.0 linux ssh tomcat
                3.0 linux ssh tomcat
            """,
        ),
        _network(
            "tiny-hard",
            192,
            sensitive="2.0 3.0",
            exploits=(SSH, FTP, HTTP),
            escalations=(TOMCAT, DACLSVC),
            links="0-1 1-2 1-3 2-3",
            firewall="""
                0>1 http
                1>2 ssh
                2>1 ssh
                3>1 ssh
                2>3 ftp,ssh
                3>2 ftp,ssh
            """,
            hosts="""
                1.0 linux   http
                2.0 linux   ssh,ftp tomcat
                3.0 windows ftp     daclsvc
            """,
        ),
        _network(
            "tiny-small",
            189,
            sensitive="2.0 4.0",
            exploits=(SSH, FTP, HTTP),
            escalations=(TOMCAT, DACLSVC),
            links=SMALL_LINKS,
            firewall=SMALL_FIREWALL,
            hosts="""
                1.0 linux   http     tomcat
                2.0 linux   ssh,ftp  tomcat
                3.0 windows ftp
                3.1 windows ftp,http daclsvc
                4.0 windows ssh,ftp
            """,
        ),
        _network(
            "small",
            186,
            sensitive="2.0 4.0",
            exploits=(SSH, FTP_AS_USER, HTTP),
            escalations=(TOMCAT, DACLSVC),
            links=SMALL_LINKS,
            firewall=SMALL_FIREWALL,
            hosts="""
                1.0 linux   http
                2.0 linux   ssh,ftp  tomcat
                3.0 windows ftp
                3.1 windows ftp,http daclsvc
                3.2 windows ftp      daclsvc
                3.3 windows ftp
                3.4 windows ftp      daclsvc
                4.0 linux   ssh,ftp  tomcat
            """,
        ),
        _network(
            "small-honeypot",
            186,
            sensitive="2.0 4.0",
            exploits=(SSH, FTP_AS_USER, HTTP),
            escalations=(TOMCAT, DACLSVC),
            links=SMALL_LINKS,
            firewall=SMALL_FIREWALL,
            hosts="""
                1.0 linux   http
                2.0 linux   ssh,ftp  tomcat
                3.0 windows ftp
                3.1 windows ftp,http daclsvc
                3.2 windows ftp,http daclsvc
                3.3 windows ftp
                3.4 windows ftp      daclsvc
                4.0 linux   ssh,ftp  tomcat
            """,
            values={(3, 2): -100.0},
        ),
        _network(
            "small-linear",
            187,
            sensitive="3.0 4.0",
            exploits=(SSH, FTP, HTTP),
            escalations=(TOMCAT, DACLSVC),
            links="0-1 0-6 1-2 2-3 3-4 4-5 5-6",
            firewall="""
                0>1 http
                1>2 ssh,ftp
                2>1 http
                2>3 ssh
                3>2 ssh,ftp
                4>5 ftp
                5>4 ftp,http
                5>6 http
                6>5 ssh
                0>6 http
            """,
            hosts="""
                1.0 linux   http
                2.0 linux   ssh,ftp tomcat
                3.0 windows ftp
                3.1 linux   ssh
                4.0 windows http    daclsvc
                5.0 linux   ftp,ssh
                5.1 windows ftp     daclsvc
                6.0 linux   http    tomcat
            """,
        ),
        _network(
            "medium",
            190,
            sensitive="2.0 5.0",
            exploits=(SSH, FTP, HTTP, SAMBA, SMTP),
            escalations=(TOMCAT, DACLSVC, SCHTASK),
            links="0-1 1-2 1-3 2-3 3-4 3-5",
            firewall="""
                0>1 http
                1>2 smtp
                2>1 ssh
                3>1 ssh
                2>3 http
                3>2 smtp
                3>4 ssh,ftp
                4>3 ftp,ssh
                3>5 ssh,ftp
                5>3 ftp,ssh
            """,
            hosts="""
                1.0 linux   http
                2.0 windows smtp      schtask
                3.0 windows ftp       schtask
                3.1 windows ftp,http  daclsvc
                3.2 windows ftp
                3.3 windows ftp       schtask
                3.4 windows ftp       schtask
                4.0 linux   ssh
                4.1 linux   ssh
                4.2 linux   ssh
                4.3 windows ssh,ftp   tomcat
                4.4 windows ssh,ftp   tomcat
                5.0 linux   ssh,samba
                5.1 linux   ssh,http  tomcat
                5.2 linux   ssh
                5.3 linux   ssh
            """,
            step_limit=2000,
        ),
        _network(
            "medium-single-site",
            195,
            sensitive="1.3 1.8",
            exploits=(SSH, FTP, HTTP, SAMBA, SMTP),
            escalations=(TOMCAT, DACLSVC, SCHTASK),
            links="0-1",
            firewall="0>1 http",
            hosts="""
                1.0  linux   ftp     tomcat
                1.1  linux   ftp,ssh tomcat
                1.2  windows ftp     schtask
                1.3  windows smtp    schtask
                1.4  windows ftp     schtask
                1.5  linux   ftp,ssh tomcat
                1.6  windows ftp     daclsvc
                1.7  windows http
                1.8  linux   ssh     tomcat
                1.9  windows ftp     schtask
                1.10 windows ssh
                1.11 windows ftp     daclsvc
                1.12 windows ftp,ssh
                1.13 windows ftp
                1.14 windows ftp     schtask
                1.15 linux   http
            """,
            step_limit=2000,
        ),
        _network(
            "medium-multi-site",
            190,
            sensitive="2.1 3.4",
            exploits=(SSH, FTP, HTTP, SAMBA, SMTP),
            escalations=(TOMCAT, DACLSVC, SCHTASK),
            links="0-1 0-4 0-5 0-6 1-2 1-3 2-3 2-4 2-5 2-6",
            firewall="""
                0>5 http
                0>6 samba
                2>1 ssh
                3>1 ssh
                2>3 http
                3>2 smtp
                2>4 ftp
                4>2 smtp
                2>5 ftp
                5>2 smtp
                2>6 ftp,ssh
                6>2 smtp
            """,
            hosts="""
                1.0 linux   ssh       tomcat
                1.1 linux   ssh       tomcat
                2.0 windows smtp
                2.1 windows smtp      schtask
                3.0 linux   ssh       tomcat
                3.1 linux   ssh,http
                3.2 linux   ssh
                3.3 linux   ssh
                3.4 linux   ssh       tomcat
                3.5 linux   ssh
                4.0 windows ftp       daclsvc
                4.1 windows ftp       daclsvc
                5.0 windows ftp       daclsvc,schtask
                5.1 windows ftp,http
                6.0 linux   ssh       tomcat
                6.1 windows ssh,samba
            """,
            step_limit=2000,
        ),
    )
}
"""The fixed networks by name."""
