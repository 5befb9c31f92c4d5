/* A driver without a GPU: libcuda.so.1 as adjit calls it.

   Memory of a device is memory of the host. What is put onto a stream waits in a queue until somebody
   synchronizes, so that a read that forgot to wait sees old bytes. Kernels are handed to a function of
   the test with their name and their parameters of 8 bytes each; without one they are counted only. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cuda.h>) /* so that the compiler compares the signatures */
#include <cuda.h>
#else
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUpointer_attribute;
typedef int CUstreamCaptureMode;
typedef void *CUcontext, *CUstream, *CUevent, *CUgraph, *CUgraphExec, *CUmodule, *CUfunction;
typedef unsigned long long CUdeviceptr;
enum { CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_READY = 600,
       CUDA_ERROR_ILLEGAL_ADDRESS = 700, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9, CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
#endif

#define EXPORT __attribute__((visibility("default")))
#define MOST 4096

enum { COPY, KERNEL, RECORD, WAIT, GRAPH, CALL };

struct function { char name[512]; int parameters, most_shared; };
struct event { struct stream *stream; long at; double time; int recorded; };
struct graph { struct op *ops; int count; };
struct op {
    int kind;
    void *to, *from; size_t nbytes; void *staged;
    struct function *function; unsigned grid, threads, shared; long long parameters[512];
    struct event *event; struct graph *graph;
    int (*call)(void *); char data[320];
};
struct stream { struct op *ops; long count, room, done; struct graph *captured; };
struct block { char *start; size_t nbytes; int pinned, device; };

static struct block blocks[MOST * 16];
static int block_count;
static struct stream default_stream, *streams[MOST];
static int stream_count;
static struct function functions[MOST];
static int function_count, current_device;
static CUresult broken;
static double now;
static int (*runner)(const char *, unsigned, unsigned, unsigned, long long *);

/* What tests look at and set. */
EXPORT long stub_launches, stub_graph_launches, stub_allocations, stub_live_bytes, stub_copies;
EXPORT long stub_memory = 1L << 30;
EXPORT int stub_devices = 2, stub_version = 13000, stub_major = 9, stub_minor = 0;
EXPORT void stub_set_runner(int (*f)(const char *, unsigned, unsigned, unsigned, long long *)) { runner = f; }
EXPORT void stub_mend(void) { broken = 0; }
static struct function *function_of(const char *name) {
    for (int k = 0; k < function_count; k++)
        if (!strcmp(functions[k].name, name)) return &functions[k];
    snprintf(functions[function_count].name, sizeof functions[0].name, "%s", name);
    return &functions[function_count++];
}
EXPORT void stub_describe(const char *name, int parameters) { function_of(name)->parameters = parameters; }

static struct block *block_of(const void *address) {
    for (int k = 0; k < block_count; k++)
        if (blocks[k].start && (char *)address >= blocks[k].start &&
            (char *)address < blocks[k].start + blocks[k].nbytes)
            return &blocks[k];
    return NULL;
}

EXPORT long stub_room(const void *address) {
    struct block *b = block_of(address);
    return b ? b->start + b->nbytes - (char *)address : 0;
}

static int reaches(const void *address, size_t nbytes) {
    struct block *b = block_of(address);
    return b && (char *)address + nbytes <= b->start + b->nbytes;
}

static void run_until(struct stream *s, long end);

static void run_op(struct op *op) {
    if (op->kind == COPY) {
        memcpy(op->to, op->staged ? op->staged : op->from, op->nbytes);
        free(op->staged);
    } else if (op->kind == KERNEL) {
        stub_launches++;
        if (runner && runner(op->function->name, op->grid, op->threads, op->shared, op->parameters))
            broken = CUDA_ERROR_ILLEGAL_ADDRESS;
    } else if (op->kind == RECORD) {
        op->event->time = now += 0.25;
    } else if (op->kind == WAIT) {
        if (op->event->recorded) run_until(op->event->stream, op->event->at);
    } else if (op->kind == CALL) {
        if (op->call(op->data)) broken = CUDA_ERROR_ILLEGAL_ADDRESS;
    } else {
        stub_graph_launches++;
        for (int k = 0; k < op->graph->count; k++) {
            struct op copy = op->graph->ops[k];
            run_op(&copy);
        }
    }
}

static void run_until(struct stream *s, long end) {
    while (s->done < end && !broken) {
        struct op op = s->ops[s->done++];
        run_op(&op);
    }
}

static struct stream *stream_at(CUstream handle) {
    return handle ? (struct stream *)handle : &default_stream;
}

static void run_all(void) {
    run_until(&default_stream, default_stream.count);
    for (int k = 0; k < stream_count; k++)
        if (streams[k]) run_until(streams[k], streams[k]->count);
}

static CUresult put(CUstream handle, struct op op) {
    struct stream *s = stream_at(handle);
    if (broken) return broken;
    if (s->captured) {
        struct graph *g = s->captured;
        g->ops = realloc(g->ops, sizeof(op) * (g->count + 1));
        g->ops[g->count++] = op;
        return 0;
    }
    if (s->count == s->room) s->ops = realloc(s->ops, sizeof(op) * (s->room = 2 * s->room + 64));
    s->ops[s->count++] = op;
    return 0;
}

/* Work of other libraries: a function over a copy of some data. */
EXPORT CUresult stub_put(CUstream s, int (*call)(void *), const void *data, size_t n) {
    struct op op = {CALL, .call = call};
    memcpy(op.data, data, n);
    return put(s, op);
}

/* Devices. */
EXPORT CUresult cuInit(unsigned flags) {
    char *v = getenv("STUB_VERSION"), *d = getenv("STUB_DEVICES");
    if (v) stub_version = atoi(v);
    if (d) stub_devices = atoi(d);
    return getenv("STUB_INIT") ? atoi(getenv("STUB_INIT")) : 0;
}
EXPORT CUresult cuDriverGetVersion(int *v) { *v = stub_version; return 0; }
EXPORT CUresult cuGetErrorName(CUresult e, const char **s) {
    *s = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : e == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
       : e == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
EXPORT CUresult cuGetErrorString(CUresult e, const char **s) {
    *s = e == 2 ? "out of memory" : e == 700 ? "an illegal memory access was encountered"
       : e == 200 ? "device kernel image is invalid"
       : e == 100 ? "no CUDA-capable device is detected" : "invalid argument";
    return 0;
}
EXPORT CUresult cuDeviceGetCount(int *n) { *n = stub_devices; return 0; }
EXPORT CUresult cuDeviceGetName(char *s, int room, CUdevice d) { snprintf(s, room, "Stub GPU %d", d); return 0; }
EXPORT CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? stub_major
       : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? stub_minor
       : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 4
       : a == CU_DEVICE_ATTRIBUTE_WARP_SIZE ? 32
       : a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448 : 1024;
    return 0;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { *n = stub_memory; return 0; }
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = (CUcontext)(size_t)(d + 1); return 0; }
EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
    current_device = (int)(size_t)c - 1;
    return c ? 0 : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuCtxSynchronize(void) { run_all(); return broken; }

/* Memory. Fresh bytes are NaN in every floating type. */
static CUresult take(void **p, size_t n, int pinned) {
    if (!pinned && stub_live_bytes + (long)n > stub_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    int k = 0;
    while (k < block_count && blocks[k].start) k++;
    if (k == block_count) block_count++;
    blocks[k].start = aligned_alloc(512, (n + 511) / 512 * 512);
    blocks[k].nbytes = n;
    blocks[k].pinned = pinned;
    blocks[k].device = current_device;
    memset(blocks[k].start, 0xff, n);
    if (!pinned) { stub_live_bytes += n; stub_allocations++; }
    *p = blocks[k].start;
    return 0;
}
static CUresult give(void *p) {
    struct block *b = block_of(p);
    if (!b || b->start != p) return CUDA_ERROR_INVALID_VALUE;
    run_all();
    if (!b->pinned) stub_live_bytes -= b->nbytes;
    free(b->start);
    b->start = NULL;
    return broken;
}
EXPORT CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { *f = stub_memory - stub_live_bytes; *t = stub_memory; return 0; }
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) { return broken ? broken : take((void **)p, n, 0); }
EXPORT CUresult cuMemFree_v2(CUdeviceptr p) { return give((void *)p); }
EXPORT CUresult cuPointerGetAttribute(void *found, CUpointer_attribute a, CUdeviceptr p) {
    struct block *b = block_of((void *)p);
    if (!b || b->pinned || a != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) return CUDA_ERROR_INVALID_VALUE;
    *(int *)found = b->device;
    return 0;
}
EXPORT CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) { return take(p, n, 1); }

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) {
    struct op op = {COPY, (void *)to, (void *)from, n};
    if (!reaches(op.to, n)) return CUDA_ERROR_INVALID_VALUE;
    stub_copies++;
    if (!block_of(from)) op.staged = memcpy(malloc(n), from, n); /* pageable: the driver stages it */
    return put(s, op);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) {
    struct op op = {COPY, to, (void *)from, n};
    if (!reaches(op.from, n)) return CUDA_ERROR_INVALID_VALUE;
    stub_copies++;
    return put(s, op);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    struct op op = {COPY, (void *)to, (void *)from, n};
    if (!reaches(op.from, n) || !reaches(op.to, n)) return CUDA_ERROR_INVALID_VALUE;
    return put(s, op);
}
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext b, CUdeviceptr from, CUcontext a, size_t n, CUstream s) {
    return cuMemcpyDtoDAsync_v2(to, from, n, s);
}

/* Streams, events, graphs. */
EXPORT CUresult cuStreamCreate(CUstream *s, unsigned flags) {
    *s = (CUstream)(streams[stream_count++] = calloc(1, sizeof(struct stream)));
    return 0;
}
EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
    run_until(stream_at(s), stream_at(s)->count); /* the memory stays: events may name it */
    return 0;
}
EXPORT CUresult cuStreamSynchronize(CUstream s) {
    run_until(stream_at(s), stream_at(s)->count);
    return broken;
}
EXPORT CUresult cuStreamQuery(CUstream s) {
    return broken ? broken : stream_at(s)->done == stream_at(s)->count ? 0 : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
    return put(s, (struct op){WAIT, .event = (struct event *)e});
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
    if (!s) return CUDA_ERROR_INVALID_VALUE; /* the default stream cannot be captured */
    stream_at(s)->captured = calloc(1, sizeof(struct graph));
    return 0;
}
EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *g) {
    *g = (CUgraph)stream_at(s)->captured;
    stream_at(s)->captured = NULL;
    return *g ? 0 : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long flags) {
    *x = (CUgraphExec)g;
    return 0;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
    return put(s, (struct op){GRAPH, .graph = (struct graph *)x});
}
EXPORT CUresult cuGraphDestroy(CUgraph g) { return 0; }
EXPORT CUresult cuGraphExecDestroy(CUgraphExec x) { return 0; }
EXPORT CUresult cuEventCreate(CUevent *e, unsigned flags) { *e = calloc(1, sizeof(struct event)); return 0; }
EXPORT CUresult cuEventDestroy_v2(CUevent e) { return 0; }
EXPORT CUresult cuEventRecord(CUevent handle, CUstream s) {
    struct event *e = (struct event *)handle;
    CUresult code = put(s, (struct op){RECORD, .event = e});
    e->stream = stream_at(s);
    e->at = e->stream->count;
    e->recorded = 1;
    return code;
}
EXPORT CUresult cuEventQuery(CUevent handle) {
    struct event *e = (struct event *)handle;
    return broken ? broken : !e->recorded || e->stream->done >= e->at ? 0 : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuEventSynchronize(CUevent handle) {
    struct event *e = (struct event *)handle;
    if (e->recorded) run_until(e->stream, e->at);
    return broken;
}
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
    struct event *first = (struct event *)a, *last = (struct event *)b;
    if (!first->recorded || !last->recorded) return CUDA_ERROR_INVALID_VALUE;
    if (cuEventQuery(a) || cuEventQuery(b)) return CUDA_ERROR_NOT_READY;
    *ms = last->time - first->time;
    return 0;
}

/* Kernels. */
EXPORT CUresult cuModuleLoadData(CUmodule *m, const void *image) {
    *m = (CUmodule)image;
    return strcmp(image, "newer") ? 0 : 200;
}
EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
    *f = (CUfunction)function_of(name);
    return 0;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int value) {
    if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 232448) return CUDA_ERROR_INVALID_VALUE;
    ((struct function *)f)->most_shared = value;
    return 0;
}
EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream s, void **parameters, void **extra) {
    struct op op = {KERNEL, .function = (struct function *)f, .grid = gx, .threads = bx, .shared = shared};
    if (!f || !gx || gy != 1 || gz != 1 || !bx || by != 1 || bz != 1) return CUDA_ERROR_INVALID_VALUE;
    if (shared > (op.function->most_shared ? op.function->most_shared : 49152)) return CUDA_ERROR_INVALID_VALUE;
    for (int k = 0; k < op.function->parameters; k++) op.parameters[k] = *(long long *)parameters[k];
    return put(s, op);
}
