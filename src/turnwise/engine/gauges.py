"""What an engine holds and does now, in numbers."""

from __future__ import annotations

from turnwise.engine.schedule import Schedule


def gauges(schedule: Schedule) -> dict[str, int]:
    """By name; `cache_limit_bytes` only where there is a limit."""
    pool, sessions = schedule.room.pool, schedule.room.sessions
    column, version = pool.shape.column_bytes, schedule.version
    found = {
        "sessions": len(sessions),
        "sessions_cached": sum(s.cache is not None for s in sessions),
        "sessions_stale": sum(s.cache is not None and 0 <= s.cache.version < version for s in sessions),
        "running": len(schedule.running),
        "waiting": len(schedule.line),
        "paused": int(not schedule.go.is_set()),
        "version": version,
        "cache_bytes": pool.used * column,
        "cache_peak_bytes": pool.peak * column,
    }
    return found | ({"cache_limit_bytes": pool.columns * column} if pool.fixed else {})
