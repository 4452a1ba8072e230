-- The speed probe. Rates come from the raw counts and times alone. A server's clock for the answer starts at the first
-- token, so n tokens take n - 1 steps; llama-bench times all n of its steps, and its figures stay apart by `kind`.

-- One row a measurement, warm-ups included, with its rate in tokens per second.
create or replace view probe_measurements as
select
    *,
    case
        when outcome <> 'ok' then null
        when kind = 'prompt' and cache_n = 0 then prompt_rate(prompt_n, prompt_ms)
        when kind = 'decode' then decode_rate(predicted_n, predicted_ms)
        when kind = 'llama-bench-prompt' then prompt_rate(prompt_n, prompt_ms)
        when kind = 'llama-bench-decode' then prompt_rate(predicted_n, predicted_ms)
    end as tps
from probes;

-- One row for each run, arm, stage (start, end; apart: llama-bench), kind and size. `n` values are behind the rate; ttft_ms_mean counts
-- requests without cached tokens. A kind that starts with llama-bench is that program's, of other code and settings.
create or replace view probe_summary as
select
    run_id, arm_id, stage, kind, size,
    count(tps) as n,
    avg(tps) as tps_mean,
    stddev_samp(tps) as tps_sd,
    min(tps) as tps_min,
    max(tps) as tps_max,
    avg(prompt_n) filter (where tps is not null) as prompt_n_mean,
    avg(predicted_n) filter (where tps is not null) as predicted_n_mean,
    avg(ttft_ms) filter (where outcome = 'ok' and cache_n = 0) as ttft_ms_mean,
    case when sum(draft_n) filter (where outcome = 'ok') > 0
        then 100.0 * sum(draft_n_accepted) filter (where outcome = 'ok') / sum(draft_n) filter (where outcome = 'ok')
    end as draft_accepted_pct,
    count(*) filter (where outcome <> 'ok') as n_failed,
    max_by(outcome || coalesce(': ' || detail, ''), measured_at) filter (where outcome <> 'ok') as last_failure
from probe_measurements
where not warmup or outcome <> 'ok'
group by run_id, arm_id, stage, kind, size;

-- The rate at an arm's end against the rate at its start, of the same server. spread_pct is the larger standard
-- deviation of the two, in percent of its mean: a drift below it is no more than the repetitions differ anyway.
create or replace view probe_drift as
with stages as (
    select run_id, arm_id, session_id, kind, size, stage, avg(tps) as tps, count(tps) as n,
        100.0 * stddev_samp(tps) / avg(tps) as spread_pct, max(measured_at) as measured_at
    from probe_measurements
    where not warmup and tps is not null and kind in ('prompt', 'decode')
    group by all
)
select
    s.run_id, s.arm_id, s.session_id, s.kind, s.size,
    s.tps as start_tps, e.tps as end_tps, s.n as start_n, e.n as end_n,
    100.0 * (e.tps / s.tps - 1) as drift_pct,
    greatest(s.spread_pct, e.spread_pct) as spread_pct,
    date_diff('second', s.measured_at, e.measured_at) as seconds_between,
    abs(100.0 * (e.tps / s.tps - 1)) > t.value as flagged
from stages s
join stages e using (run_id, arm_id, session_id, kind, size)
cross join (select value from rule_settings where name = 'probe_tolerance_pct') t
where s.stage = 'start' and e.stage = 'end';

-- The suite's mean decode rate against the probe's. Tokens take longer the more stands before them, so the probe's rate
-- is taken at the mean depth of the suite's answers (prompt and half of the answer), between two measured depths by a
-- straight line in ms per token; outside of them it is the nearest measured one, and depth_covered says so.
-- shallow_tps is the probe's rate at its smallest size. Nothing is flagged where answers shared the server (slots).
create or replace view probe_against_suite as
with
probed as (
    select run_id, arm_id, size, avg(tps) as tps, 1000.0 / avg(tps) as ms,
        avg(prompt_n + predicted_n / 2.0) as depth, count(tps) as n
    from probe_measurements
    where kind = 'decode' and stage = 'start' and not warmup and tps is not null
    group by all
),
suite as (
    select run_id, arm_id, suite_id, identity, avg(decode_tps) as suite_tps, stddev_samp(decode_tps) as suite_sd,
        count(decode_tps) as suite_n, avg(prompt_tokens + completion_tokens / 2.0) as suite_depth,
        sum(draft_n) > 0 as drafted
    from cells
    semi join probed using (run_id, arm_id)
    where planned and complete and decode_tps is not null
    group by all
),
beside as (
    select s.*,
        min_by(p.tps, p.size) as shallow_tps,
        max_by({'depth': p.depth, 'ms': p.ms}, p.depth) filter (where p.depth <= s.suite_depth) as below,
        min_by({'depth': p.depth, 'ms': p.ms}, p.depth) filter (where p.depth > s.suite_depth) as above
    from suite s join probed p using (run_id, arm_id)
    group by all
),
rated as (
    select *,
        1000.0 / case
            when above is null then below.ms
            when below is null then above.ms
            else below.ms + (above.ms - below.ms) * (suite_depth - below.depth) / (above.depth - below.depth)
        end as probe_tps
    from beside
)
select
    r.run_id, r.arm_id, r.suite_id, r.identity, r.suite_tps, r.suite_sd, r.suite_n, r.suite_depth,
    r.probe_tps, r.shallow_tps,
    r.below is not null and r.above is not null as depth_covered,
    100.0 * (r.suite_tps / r.probe_tps - 1) as difference_pct,
    100.0 * (r.suite_tps / r.shallow_tps - 1) as shallow_difference_pct,
    coalesce(r.drafted, false) as drafted,
    a.slots,
    coalesce(a.slots, 1) = 1 and abs(100.0 * (r.suite_tps / r.probe_tps - 1)) > t.value as flagged
from rated r
left join arms_latest a using (run_id, arm_id)
cross join (select value from rule_settings where name = 'probe_tolerance_pct') t;

-- Caveats that the probe gives rise to; columns as in `caveats`.
create or replace view probe_caveats as
with
drift as (
    select run_id, arm_id, 'probe_drift' as rule, 'warning' as level,
        'the ' || kind || ' rate at ' || size || ' tokens went from ' || format('{:.1f}', start_tps) || ' to '
            || format('{:.1f}', end_tps) || ' tokens a second between the arm''s start and end ('
            || format('{:+.1f}', drift_pct) || ' %'
            || coalesce('; the repetitions spread by ' || format('{:.1f}', spread_pct) || ' %', '')
            || case when least(start_n, end_n) = 1 then '; one of the two is a single measurement' else '' end
            || '): heat, or other work on the machine' as text,
        'probe_drift' as source
    from probe_drift
    where flagged
    qualify row_number() over (partition by run_id, arm_id order by abs(drift_pct) desc, session_id, kind, size) = 1
),
against as (
    select run_id, arm_id, 'probe_against_suite', 'warning',
        'answers came at ' || format('{:.1f}', suite_tps) || ' tokens a second, where the speed probe says '
            || format('{:.1f}', probe_tps) || ' (' || format('{:+.1f}', difference_pct) || ' %)'
            || case when drafted then '; drafts are accepted more or less often in another text' else '' end
            || case when not depth_covered
                then '; the answers stood at ' || format('{:.0f}', suite_depth) || ' tokens, which the probe did not reach on both sides'
                else '' end,
        'probe_against_suite'
    from probe_against_suite
    where flagged
),
failed as (
    select run_id, arm_id, 'probe_failed', 'note',
        'the speed probe measured nothing'
            || coalesce(': ' || max_by(outcome || coalesce(' (' || detail || ')', ''), measured_at)
                filter (where outcome <> 'ok'), ''),
        'probe_measurements'
    from probe_measurements
    where stage = 'start' and kind in ('prompt', 'decode')
    group by run_id, arm_id
    having count(tps) filter (where not warmup) = 0
),
noisy as (
    select run_id, arm_id, 'probe_noisy', 'note',
        'the speed probe''s repetitions differ by up to ' || format('{:.0f}', max(100.0 * tps_sd / tps_mean))
            || ' % (standard deviation): the machine was not quiet',
        'probe_summary'
    from probe_summary
    where kind in ('prompt', 'decode') and stage = 'start'
        and 100.0 * tps_sd / tps_mean > (select value from rule_settings where name = 'probe_spread_pct')
    group by run_id, arm_id
),
few as (
    select run_id, arm_id, 'probe_few', 'note',
        'the speed probe had time for ' || min(n) || case when min(n) = 1 then ' measurement' else ' measurements' end
            || ' of a size only', 'probe_summary'
    from probe_summary
    where kind in ('prompt', 'decode') and stage = 'start' and n > 0
    group by run_id, arm_id
    having min(n) < 3
)
from drift
union all from against
union all from failed
union all from noisy
union all from few;
