-- What a generation's numbers depend on, apart from the question itself: the model, the server, the machine. Port,
-- host, label and attempt are no part of it. Generations with another identity are never mixed in.
create or replace macro identity_of(model_sha256, engine, build, commit, image_digest, binary_sha256, gpu_name, gpu_driver, preset_hash) as
    substr(md5(concat_ws('|', coalesce(model_sha256, '-'), coalesce(engine, '-'), coalesce(build::varchar, '-'),
        coalesce(commit, '-'), coalesce(image_digest, '-'), coalesce(binary_sha256, '-'), coalesce(gpu_name, '-'),
        coalesce(gpu_driver, '-'), coalesce(preset_hash, '-'))), 1, 12);

-- Every stored answer, with its identity and whether the plan asks for it: `in_plan` is false for an answer that it does
-- not ask for (another seed, another prompt, an iteration too many), which counts nowhere and is listed in `missing` as
-- an error. It is NULL in a run without a plan.
create or replace view generations_in_plan as
with identified as (
    select
        *,
        is_complete(outcome) as complete,
        identity_of(model_sha256, engine, build, commit, image_digest, binary_sha256, gpu_name, gpu_driver, preset_hash)
            as identity
    from generations
)
select
    g.*,
    case
        when p.run_id is not null then
            coalesce(p.request_seed = g.request_seed, true)
            and coalesce(p.prompt_hash = g.prompt_hash, true)
            and coalesce(p.preset_hash = g.preset_hash, true)
        when r.run_id is not null then false
    end as in_plan
from identified g
left join plan_latest p using (run_id, arm_id, suite_id, level_id, iteration)
left join (select distinct run_id from plan) r using (run_id);

-- The generation that counts for each planned request and identity: the newest complete attempt; where no attempt was
-- complete, the newest.
create or replace view generations_latest as
select *
from generations_in_plan
qualify row_number() over (
    partition by run_id, arm_id, suite_id, level_id, iteration, identity, in_plan,
        case when in_plan then null else prompt_hash end, case when in_plan then null else request_seed end
    order by complete desc, attempt desc, started_at desc nulls last, generation_id desc
) = 1;
