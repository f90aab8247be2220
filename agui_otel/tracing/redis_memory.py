"""Thread memory in Redis, for processes on several machines (trace model: thread memory).

One key a thread, a hash that expires: its record, a token that each write changes, and its open interrupts. A change is
read, applied here and written by a script that does nothing where the token is not the one that was read (then it is
tried again). The same script keeps the sorted sets beside the threads, of which the figure is read off: by time of
expiry, and the open interrupts by reason.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

from redis import ConnectionError as ConnectionFailed
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from agui_otel.protocol.thread import ThreadChange, ThreadRecord, decode
from agui_otel.tracing.memory import DEFAULT_SIZE, DEFAULT_TIMEOUT, DEFAULT_TTL, Figure, Waiting
from agui_otel.tracing.runs import SeenRuns
from agui_otel.tracing.stored import as_bytes, as_text, expiry_of, is_gone, open_in

PREFIX = b"agui-otel:"
MAX_TRIES = 200
"""Writes that are lost to others who write the same thread before one gives up."""
CONNECTIONS = 32

_COMMON = """
local prefix, now = ARGV[1], tonumber(ARGV[2])
local threads, waiting, due, reasons =
    prefix .. 'threads', prefix .. 'waiting', prefix .. 'due', prefix .. 'reasons'
local function forget(member)
    local length, from = string.match(member, '^(%d+):()')
    redis.call('ZREM', prefix .. 'open:' .. string.sub(member, from, from + length - 1), member)
    redis.call('ZREM', due, member)
end
local function forget_those_of(key)
    local members = redis.call('HGET', key, 'members')
    if members then
        for _, member in ipairs(cmsgpack.unpack(members)) do forget(member) end
    end
end
local function purge(limit)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, limit)) do forget(member) end
    for _, thread in ipairs(redis.call('ZRANGEBYSCORE', threads, '-inf', now, 'LIMIT', 0, limit)) do
        redis.call('ZREM', threads, thread)
        redis.call('ZREM', waiting, thread)
    end
end
"""

_WRITE = (
    _COMMON
    + """
local key, thread, read, token, record = KEYS[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local expires, since, size = ARGV[7], ARGV[8], tonumber(ARGV[9])
if (redis.call('HGET', key, 'token') or '') ~= read then return -1 end
purge(64)
forget_those_of(key)
if record == '' then
    redis.call('DEL', key)
    redis.call('ZREM', threads, thread)
    redis.call('ZREM', waiting, thread)
    return 0
end
local members = {}
for index = 10, #ARGV, 4 do
    local member = ARGV[index]
    members[#members + 1] = member
    redis.call('SADD', reasons, ARGV[index + 1])
    redis.call('ZADD', prefix .. 'open:' .. ARGV[index + 1], ARGV[index + 2], member)
    redis.call('ZADD', due, ARGV[index + 3], member)
end
redis.call('HSET', key, 'record', record, 'token', token, 'members', cmsgpack.pack(members))
redis.call('PEXPIRE', key, math.ceil((expires - now) * 1000))
redis.call('ZADD', threads, expires, thread)
if since == '' then redis.call('ZREM', waiting, thread) else redis.call('ZADD', waiting, since, thread) end
local evicted = 0
while redis.call('ZCARD', threads) > size do
    local last = redis.call('ZPOPMIN', threads)[1]
    forget_those_of(prefix .. 'thread:' .. last)
    redis.call('DEL', prefix .. 'thread:' .. last)
    redis.call('ZREM', waiting, last)
    evicted = evicted + 1
end
return evicted
"""
)

_FIGURE = (
    _COMMON
    + """
purge(5000)
local found = {}
for _, reason in ipairs(redis.call('SMEMBERS', reasons)) do
    local open = redis.call('ZCARD', prefix .. 'open:' .. reason)
    if open == 0 then
        redis.call('SREM', reasons, reason)
    else
        local oldest = redis.call('ZRANGE', prefix .. 'open:' .. reason, 0, 0, 'WITHSCORES')
        found[#found + 1] = {reason, open, oldest[2]}
    end
end
return found
"""
)


class RedisMemory:
    """Threads in the Redis that `url` names (`redis://`, `rediss://` or `unix://`; as redis-py reads it).

    A thread is forgotten `ttl` seconds after its last write (a seventh of that where nothing waits in it), or
    when it is the one with the least time left of more than `size` threads. Each exchange with the server has
    `timeout` seconds. `clock` gives seconds since the epoch. `read`, `write` and `waiting` raise `RedisError`.
    """

    scope: Literal["process", "shared"] = "shared"
    immediate = False

    def __init__(
        self,
        url: str,
        *,
        ttl: float = DEFAULT_TTL,
        size: int = DEFAULT_SIZE,
        timeout: float = DEFAULT_TIMEOUT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.seen = SeenRuns()
        self._ttl = ttl
        self._size = size
        self._clock = clock
        # A connection that the server closed meanwhile is made anew, once; what takes too long is not tried again.
        retry = Retry(NoBackoff(), 1, supported_errors=(ConnectionFailed,))
        self._redis: Any = Redis.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=retry, max_connections=CONNECTIONS
        )
        self._write = self._redis.register_script(_WRITE)
        self._figure = self._redis.register_script(_FIGURE)

    def read(self, thread_id: str, notes: list[str] | None = None, /) -> ThreadRecord | None:
        """The thread's record, or None."""
        data = self._redis.hget(_key(as_bytes(thread_id)), "record")
        return None if data is None else decode(data, [] if notes is None else notes)

    def write(self, change: ThreadChange) -> int:
        """Apply a run's change to what is stored now; again, where somebody else wrote meanwhile."""
        thread = as_bytes(change.thread_id)
        key = _key(thread)
        for _ in range(MAX_TRIES):
            data, token = self._redis.hmget(key, "record", "token")
            record = change.apply(None if data is None else decode(data, []))
            evicted: int = self._write(keys=[key], args=self._arguments(thread, record, token))
            if evicted >= 0:
                return evicted
            time.sleep(random.uniform(0, 0.005))
        raise RedisError("others kept writing the same thread")

    def waiting(self, limit: int) -> Iterator[ThreadRecord]:
        """Threads in which something waits."""
        pipeline = self._redis.pipeline(transaction=False)
        for thread in self._redis.zrange(PREFIX + b"waiting", 0, limit - 1):
            pipeline.hget(_key(thread), "record")
        found = (decode(data, []) for data in pipeline.execute() if data is not None)
        return (record for record in found if record is not None)

    def figure(self) -> Figure | None:
        """The open interrupts of all threads; None where the server cannot say."""
        try:
            rows = self._figure(args=[PREFIX, repr(self._clock())])
        except RedisError:
            return None
        return Figure({as_text(reason): Waiting(int(count), float(since)) for reason, count, since in rows})

    def close(self) -> None:
        """Close the connections; a later call opens them again."""
        self._redis.close()

    def _arguments(self, thread: bytes, record: ThreadRecord, token: bytes | None) -> list[Any]:
        now = self._clock()
        expires = expiry_of(record, self._ttl, now)
        arguments: list[Any] = [
            PREFIX, repr(now), thread, token or b"", uuid.uuid4().bytes, b"" if is_gone(record) else record.encode(),
            repr(expires), b"" if record.empty else repr(record.since()), self._size,
        ]  # fmt: skip
        for each, until in open_in(record, expires, now):
            reason = as_bytes(each.reason)
            arguments += [_member(reason, thread, as_bytes(each.id)), reason, repr(each.since), repr(until)]
        return arguments


def _key(thread: bytes) -> bytes:
    return PREFIX + b"thread:" + thread


def _member(*parts: bytes) -> bytes:
    """An interrupt in a sorted set: reason, thread and id, each with its length, because ids may hold anything."""
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)
