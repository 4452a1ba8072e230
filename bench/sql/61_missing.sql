-- What the plan asked for and no verdict answers, and what nobody asked for. `kind`: 'not asked', 'not measured' (the
-- server's or the network's doing), 'not graded', or 'unplanned' (an answer that the plan does not hold: an error).
create or replace view missing as
select
    c.run_id, c.arm_id, c.suite_id, c.identity, c.level_id, c.iteration,
    case when c.planned then c.gap else 'unplanned' end as kind,
    case
        when not c.planned then 'its seed, prompt or settings are not the plan''s, or the plan has no such iteration'
        when c.generation_id is null and a.status in ('failed', 'interrupted')
            then 'arm ' || a.status || coalesce(': ' || a.reason, '')
        when c.generation_id is null and a.status = 'planned' then 'the arm has not begun'
        else c.gap_reason
    end as reason,
    not c.planned as is_error
from cells c
left join arms_latest a using (run_id, arm_id)
where not c.planned or c.gap is not null;
