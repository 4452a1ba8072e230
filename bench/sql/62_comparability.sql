-- Which servers and machines answered for an arm: one row for each identity among the answers that the plan asks for.
create or replace view identities as
select distinct run_id, arm_id, identity, engine, build, commit, image_digest, binary_sha256, gpu_name, gpu_driver,
    model_sha256, preset_hash
from generations_in_plan
where in_plan is not false;

-- What must be the same for arms to be compared, as each arm has it. One row for each arm, aspect and value.
create or replace view compared_aspects as
with
aspects as (
    select run_id, arm_id, unnest([
        {'aspect': 'engine', 'value': engine},
        {'aspect': 'llama.cpp build', 'value': nullif(concat_ws(' ', build::varchar, commit), '')},
        {'aspect': 'image', 'value': image_digest},
        {'aspect': 'server binary', 'value': binary_sha256},
        {'aspect': 'GPU', 'value': gpu_name},
        {'aspect': 'driver', 'value': gpu_driver}
    ], recursive := true)
    from identities
    union all
    select run_id, arm_id, aspect, value
    from (
        select run_id, arm_id, unnest([
            {'aspect': 'prompt of ' || level_id, 'value': prompt_hash, 'known': asked},
            {'aspect': 'grading of ' || level_id, 'value': grading_hash, 'known': graded}
        ], recursive := true)
        from (
            select distinct run_id, arm_id, level_id, generation_id is not null as asked, prompt_hash,
                grade_id is not null as graded, grading_hash
            from cells
        )
    )
    where known
)
select distinct run_id, arm_id, aspect, value from aspects;

-- Aspects that differ between the arms of a run, or within an arm: figures of such arms are not compared.
create or replace view comparability as
select
    run_id, aspect,
    count(distinct coalesce(value, '-')) as n_values,
    list({'arm_id': arm_id, 'value': value} order by arm_id, value) as arm_values
from compared_aspects
group by run_id, aspect
having count(distinct coalesce(value, '-')) > 1;

-- Arms with the same group number may be compared with each other. NULL: the arm never answered.
create or replace view comparable_groups as
with counted as (
    select run_id, arm_id, aspect, value,
        count(distinct coalesce(value, '-')) over (partition by run_id, aspect) as n_values
    from compared_aspects
),
keys as (
    select run_id, arm_id, list(aspect || '=' || coalesce(value, '-') order by aspect, value) filter (where n_values > 1) as key
    from counted
    group by run_id, arm_id
)
select run_id, arm_id, dense_rank() over (partition by run_id order by coalesce(key, []::varchar[])) as comparable_group
from keys;
