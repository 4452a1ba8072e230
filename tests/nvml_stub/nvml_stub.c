/* A libnvidia-ml.so.1 that follows a script: one line for a function, re-read at every call.
 *
 *   nvmlDeviceGetPowerUsage 250000        values, in the order of the result's fields
 *   nvmlDeviceGetPowerUsage !3            an NVML error code
 *   nvmlDeviceGetUUID#1 GPU-bbbb          for the device with index 1 only
 *
 * The script is the file that $NVML_STUB names. Build with -DWITHOUT_NEW to leave out functions that older drivers lack, and with
 * -DWITHOUT_PROCESSES as well for one that lists no processes at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;
typedef struct { ull total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } use_t;
typedef struct { unsigned pid; ull used; unsigned gpu_instance, compute_instance; } process_t;

static int line_for(const char *name, char *rest, size_t size) {
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        char *space = strchr(line, ' ');
        if (!space) continue;
        *space = 0;
        if (strcmp(line, name)) continue;
        snprintf(rest, size, "%s", space + 1);
        rest[strcspn(rest, "\n")] = 0;
        found = 1;
    }
    fclose(file);
    return found;
}

/* Returns an NVML code; fills up to n values; *count says how many the script gave. */
static int look(const char *name, void *device, ull *values, int n, int *count, char *text, size_t size) {
    char key[128], rest[1024] = "";
    int got = 0;
    if (device) snprintf(key, sizeof key, "%s#%ld", name, (long)device - 1);
    if (!(device && line_for(key, rest, sizeof rest)) && !line_for(name, rest, sizeof rest)) {
        if (count) *count = 0;
        return 0;
    }
    if (rest[0] == '!') return atoi(rest + 1);
    if (text) { snprintf(text, size, "%s", rest); return 0; }
    for (char *at = rest, *end; got < n; at = end) {
        ull value = strtoull(at, &end, 10);
        if (end == at) break;
        values[got++] = value;
    }
    if (count) *count = got;
    return 0;
}

static int one(const char *name, void *device, ull otherwise, ull *out) {
    *out = otherwise;
    return look(name, device, out, 1, NULL, NULL, 0);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return look("nvmlInit", NULL, NULL, 0, NULL, NULL, 0); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return look("nvmlShutdown", NULL, NULL, 0, NULL, NULL, 0); }
const char *nvmlErrorString(int code) { (void)code; return "scripted"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    ull value;
    int code = one("nvmlDeviceGetCount", NULL, 1, &value);
    *count = (unsigned)value;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return look("nvmlDeviceGetHandleByIndex", *device, NULL, 0, NULL, NULL, 0);
}

static int text(const char *name, void *device, const char *otherwise, char *out, unsigned size) {
    snprintf(out, size, "%s", otherwise);
    return look(name, device, NULL, 0, NULL, out, size);
}

int nvmlDeviceGetUUID(void *d, char *out, unsigned size) { return text("nvmlDeviceGetUUID", d, "GPU-aaaa", out, size); }
int nvmlDeviceGetName(void *d, char *out, unsigned size) { return text("nvmlDeviceGetName", d, "Stub GPU", out, size); }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    return text("nvmlSystemGetDriverVersion", NULL, "555.42", out, size);
}
int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    (void)pid;
    return text("nvmlSystemGetProcessName", NULL, "llama-server", out, size);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    unsigned count;
    char known[96];
    nvmlDeviceGetCount_v2(&count);
    for (unsigned i = 0; i < count; i++) {
        *device = (void *)(long)(i + 1);
        nvmlDeviceGetUUID(*device, known, sizeof known);
        if (!strcmp(known, uuid)) return look("nvmlDeviceGetHandleByUUID", NULL, NULL, 0, NULL, NULL, 0);
    }
    return 6; /* not found */
}

int nvmlDeviceGetMemoryInfo(void *d, memory_t *out) {
    ull v[3] = {24ull << 30, 0, 1ull << 30};
    int code = look("nvmlDeviceGetMemoryInfo", d, v, 3, NULL, NULL, 0);
    out->total = v[0]; out->free = v[1]; out->used = v[2];
    return code;
}

int nvmlDeviceGetUtilizationRates(void *d, use_t *out) {
    ull v[2] = {50, 20};
    int code = look("nvmlDeviceGetUtilizationRates", d, v, 2, NULL, NULL, 0);
    out->gpu = (unsigned)v[0]; out->memory = (unsigned)v[1];
    return code;
}

#define UINT(NAME, OTHERWISE)                                                                                          \
    ull value;                                                                                                         \
    int code = one(NAME, d, OTHERWISE, &value);                                                                        \
    *out = (unsigned)value;                                                                                            \
    return code;

int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { UINT("nvmlDeviceGetPowerUsage", 200000) }
int nvmlDeviceGetTemperature(void *d, unsigned sensor, unsigned *out) {
    (void)sensor;
    UINT("nvmlDeviceGetTemperature", 60)
}
int nvmlDeviceGetClockInfo(void *d, unsigned type, unsigned *out) {
    if (type == 1) { UINT("smClock", 2500) }
    UINT("memClock", 10500)
}

#ifndef WITHOUT_PROCESSES
static int processes(void *d, unsigned *count, process_t *out) {
    ull v[64];
    int got = 0, code = look("nvmlDeviceGetComputeRunningProcesses", d, v, 64, &got, NULL, 0);
    unsigned n = (unsigned)got / 2;
    if (code) return code;
    if (!out || *count < n) { *count = n; return n ? 7 : 0; }
    for (unsigned i = 0; i < n; i++) out[i] = (process_t){(unsigned)v[2 * i], v[2 * i + 1], 0, 0};
    *count = n;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *count, process_t *out) { return processes(d, count, out); }
#endif

#ifndef WITHOUT_NEW
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, process_t *out) { return processes(d, count, out); }
int nvmlDeviceGetCurrentClocksEventReasons(void *d, ull *out) { return one("clocksEventReasons", d, 0, out); }
int nvmlDeviceGetMigMode(void *d, unsigned *current, unsigned *pending) {
    ull v[2] = {0, 0};
    int code = look("nvmlDeviceGetMigMode", d, v, 2, NULL, NULL, 0);
    *current = (unsigned)v[0]; *pending = (unsigned)v[1];
    return code;
}
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, ull *out) { return one("clocksThrottleReasons", d, 0, out); }
