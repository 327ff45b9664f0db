"""HAProxy's statistics as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import DecodeError
from scaler.balancer.stat import backends, gauges, state_of
from scaler.balancer.values import ServerState
from tests.support.haproxy import backend, server, stat_text

# As HAProxy 2.8.25 writes it.
REAL = """# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,weight,act,bck,chkfail,chkdown,lastchg,downtime,qlimit,pid,iid,sid,throttle,lbtot,tracked,type,rate,rate_lim,rate_max,check_status,check_code,check_duration,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,hanafail,req_rate,req_rate_max,req_tot,cli_abrt,srv_abrt,comp_in,comp_out,comp_byp,comp_rsp,lastsess,last_chk,last_agt,qtime,ctime,rtime,ttime,agent_status,agent_code,agent_duration,check_desc,agent_desc,check_rise,check_fall,check_health,agent_rise,agent_fall,agent_health,addr,cookie,mode,algo,conn_rate,conn_rate_max,conn_tot,intercepted,dcon,dses,wrew,connect,reuse,cache_lookups,cache_hits,srv_icur,src_ilim,qtime_max,ctime_max,rtime_max,ttime_max,eint,idle_conn_cur,safe_conn_cur,used_conn_cur,need_conn_est,uweight,-,ssl_sess,
be,r1,0,0,2,2,7,16,2361,2390,,0,,0,3,0,0,DRAIN,50,1,0,,,7,,,1,3,1,,12,,2,0,,6,,,,0,8,0,1,1,0,,,,10,4,3,,,,,4,,,122,0,312,1036,,,,,,,,,,,,127.0.0.1:18091,,http,,,,,,,,0,12,4,,,2,,605,0,501,1628,0,2,0,0,2,50,-,0,
be,BACKEND,3,4,5,6,999,23,3010,3258,0,0,,4,3,3,0,UP (2/4),1,1,0,,1,4,3,,1,3,0,,13,,1,0,,10,,,,0,8,0,5,5,3,,,,21,4,3,0,0,0,0,0,,,58,0,149,494,,,,,,,,,,,,,,http,leastconn,,,,,,,0,16,4,0,0,,,605,0,501,1628,0,,,,,1,-,0,

"""  # noqa: E501


def test_a_real_answer_is_read() -> None:
    found = backends(REAL)["be"]
    assert (found.in_progress, found.queued, found.sessions) == (5, 3, 23)
    assert (found.answers_5xx, found.unreached, found.aborted) == (5, 4, 3)
    (one,) = found.servers
    assert one == server(
        "r1",
        address="127.0.0.1:18091",
        state=ServerState.DRAINING,
        in_flight=2,
        sessions=16,
        server_errors=1,
        aborted=3,
        faults=3,
        limit=7,
        weight=50,
    )
    assert gauges(REAL) == {("be", "r1"): 2, ("be", "BACKEND"): 5}


counts = st.integers(0, 10**9)
servers = st.builds(
    server,
    name=st.integers(1, 40).map("slot{}".format),
    state=st.sampled_from(ServerState),
    in_flight=counts,
    queued=counts,
    sessions=counts,
    server_errors=counts,
    aborted=counts,
    faults=counts,
    limit=counts,
    weight=st.integers(1, 256),
)


@given(st.lists(servers, max_size=5, unique_by=lambda one: one.name), counts, counts)
def test_what_is_written_is_read(lines: list, in_progress: int, queued: int) -> None:
    given_ = backend(*lines, in_progress=in_progress, queued=queued)
    assert backends(stat_text([given_])) == {"be": given_}


@pytest.mark.parametrize("length", [0, 1, 30, 150, -1, -2])
def test_half_an_answer_is_an_error_and_never_fewer_servers(length: int) -> None:
    text = stat_text([backend(server("slot1", in_flight=3), server("slot2"))])
    with pytest.raises(DecodeError):
        backends(text[:length])
    with pytest.raises(DecodeError):
        gauges(text[:length])


def test_a_text_of_a_health_check_may_hold_commas() -> None:
    plain = stat_text([backend(server("slot1", in_flight=3))])
    assert plain.count(",,10.0.0.1:80") == 1
    quoted = plain.replace(",,10.0.0.1:80", ',"L7OK, code 200, ""fine""",10.0.0.1:80')
    assert backends(quoted) == backends(plain)


def test_a_number_that_is_none_is_named() -> None:
    text = stat_text([backend(server("slot1", sessions=77777))]).replace("77777", "7x")
    with pytest.raises(DecodeError, match="stot of be/slot1 is '7x'"):
        backends(text)


@pytest.mark.parametrize(
    ("status", "weight", "state"),
    [
        ("UP", "1", ServerState.SERVING),
        ("UP 1/3", "1", ServerState.SERVING),
        ("no check", "1", ServerState.SERVING),
        ("UP", "0", ServerState.DRAINING),
        ("DRAIN", "16", ServerState.DRAINING),
        ("DRAIN (agent)", "16", ServerState.DRAINING),
        ("NOLB", "16", ServerState.DRAINING),
        ("MAINT", "16", ServerState.EMPTY),
        ("MAINT (via be/slot1)", "16", ServerState.EMPTY),
        ("DOWN", "16", ServerState.DOWN),
        ("DOWN 1/2", "16", ServerState.DOWN),
        ("something new", "16", ServerState.DOWN),
    ],
)
def test_states(status: str, weight: str, state: ServerState) -> None:
    assert state_of(status, weight) is state
