-- Exact limits of a pass rate. A verdict rests on these and never on a normal approximation, because the rates that
-- matter are near 0 and 1.

-- P(X >= k) of a binomial with n trials at rate p <= k / n, k >= 1. The terms fall from k on; those beyond ten standard
-- deviations (and at least 60) are below 1e-18 and are left out, so that it is quick for any n.
create or replace macro binomial_tail(k, n, p) as
    list_sum(list_transform(
        range(k::bigint, least(n::bigint, (k + 60 + 10 * sqrt(k::double * (n - k + 1) / n))::bigint) + 1),
        lambda i: exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) + i * ln(p) + (n - i) * ln(1.0 - p))));

-- Ends of the exact interval of k passes among n, as rates from 0 to 1, at two-sided error alpha (C. J. Clopper and
-- E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26,
-- 1934). The low end is the rate at which k or more passes have probability alpha / 2, found by 44 halvings of
-- [0, k / n]. It covers at least 1 - alpha for every true rate.
create or replace macro clopper_pearson_low(k, n, alpha) as
    case
        when k is null or n is null or n <= 0 then null
        when k <= 0 then 0.0::double
        else list_reduce(
            list_transform(range(45), lambda step: {'low': 0.0::double, 'high': least(k::double / n, 1 - 1e-15)}),
            lambda ends, step: case
                when binomial_tail(k, n, (ends.low + ends.high) / 2) > alpha / 2
                    then {'low': ends.low, 'high': (ends.low + ends.high) / 2}
                else {'low': (ends.low + ends.high) / 2, 'high': ends.high}
            end).low
    end;

create or replace macro clopper_pearson_high(k, n, alpha) as
    1.0 - clopper_pearson_low(n - k, n, alpha);
