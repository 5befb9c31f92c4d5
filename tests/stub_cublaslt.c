/* cuBLASLt without a GPU: libcublasLt.so.13 as adjit calls it, on the streams of stub_driver.c.

   A product is computed on the host, by its definition, once its stream comes to it. What NVIDIA's library
   does not forgive is an error here: sizes and leading dimensions that do not fit, an address that is not
   aligned as the algorithm was told, memory that ends too early, too little workspace. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cublasLt.h>) && __has_include(<crt/host_defines.h>) /* the compiler compares the signatures */
#include <cublasLt.h>
#else
typedef int cublasStatus_t, cublasComputeType_t, cudaDataType, cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t;
typedef void *cublasLtHandle_t, *cublasLtMatmulDesc_t, *cublasLtMatrixLayout_t, *cublasLtMatmulPreference_t;
typedef void *cudaStream_t;
typedef struct { uint64_t data[8]; } cublasLtMatmulAlgo_t;
typedef struct { cublasLtMatmulAlgo_t algo; size_t workspaceSize; int state; float wavesCount; int reserved[4]; }
    cublasLtMatmulHeuristicResult_t;
enum { CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_NOT_SUPPORTED = 15,
       CUBLAS_COMPUTE_64F = 70, CUDA_R_32F = 0, CUDA_R_64F = 1, CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4,
       CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4, CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
       CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
       CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8 };
#endif

#define EXPORT __attribute__((visibility("default")))
#define INVALID CUBLAS_STATUS_INVALID_VALUE

int stub_put(void *stream, int (*call)(void *), const void *data, size_t n);
long stub_room(const void *address);

struct layout { long long rows, columns, ld, stride; int type, batches; };
struct operation { int compute, scale, transposes[2], epilogue; const char *bias; };
struct preference { long long workspace; int alignments[4]; };
/* What a product was, for tests to look at, and to be computed. */
struct product {
    struct operation operation;
    struct layout layouts[4];
    const char *a, *b, *c; char *d, *workspace;
    double alpha, beta;
    long long workspace_bytes; int alignment;
};
_Static_assert(sizeof(struct product) <= 320, "stub_put has no room for it");
struct algorithm { long long magic, alignment, workspace; };

EXPORT long cublas_searches, cublas_products, cublas_alive, cublas_handles;
EXPORT long cublas_workspace = 4096;     /* that algorithms ask for */
EXPORT long cublas_refused = -1;         /* the epilogue that there is no algorithm for */
EXPORT long cublas_status_of_create, cublas_status_of_search, cublas_status_of_product;
EXPORT struct product cublas_last;

EXPORT const char *cublasLtGetStatusName(cublasStatus_t s) {
    return s == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
         : s == 3 ? "CUBLAS_STATUS_ALLOC_FAILED" : s == INVALID ? "CUBLAS_STATUS_INVALID_VALUE"
         : s == 13 ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
EXPORT const char *cublasLtGetStatusString(cublasStatus_t s) {
    return s == CUBLAS_STATUS_NOT_INITIALIZED ? "the library was not initialized"
         : s == 3 ? "the resource allocation failed" : s == INVALID ? "an invalid value was given"
         : s == 13 ? "the program failed to execute" : "this is not supported";
}

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
    *h = (cublasLtHandle_t)(size_t)(++cublas_handles);
    return (cublasStatus_t)cublas_status_of_create;
}
static void *made(size_t n) { cublas_alive++; return calloc(1, n); }
static cublasStatus_t ended(void *p) { cublas_alive--; free(p); return 0; }

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale) {
    struct operation *o = made(sizeof *o);
    o->compute = compute, o->scale = scale, o->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *d = (cublasLtMatmulDesc_t)o;
    return 0;
}
EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a,
                                                     const void *v, size_t n) {
    struct operation *o = (struct operation *)d;
    if (n != (a == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? 8 : 4)) return INVALID;
    if (a == CUBLASLT_MATMUL_DESC_TRANSA || a == CUBLASLT_MATMUL_DESC_TRANSB)
        o->transposes[a - CUBLASLT_MATMUL_DESC_TRANSA] = *(int *)v;
    else if (a == CUBLASLT_MATMUL_DESC_EPILOGUE) o->epilogue = *(int *)v;
    else if (a == CUBLASLT_MATMUL_DESC_BIAS_POINTER) o->bias = *(const char **)v;
    else return INVALID;
    return 0;
}
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return ended(d); }

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *m, cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
    struct layout *l = made(sizeof *l);
    *l = (struct layout){rows, columns, ld, 0, type, 1};
    *m = (cublasLtMatrixLayout_t)l;
    return 0;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t m, cublasLtMatrixLayoutAttribute_t a,
                                                       const void *v, size_t n) {
    struct layout *l = (struct layout *)m;
    if (a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && n == 4) l->batches = *(int *)v;
    else if (a == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && n == 8) l->stride = *(long long *)v;
    else return INVALID;
    return 0;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m) { return ended(m); }

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
    struct preference *made_one = made(sizeof *made_one);
    for (int k = 0; k < 4; k++) made_one->alignments[k] = 256;
    *p = (cublasLtMatmulPreference_t)made_one;
    return 0;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                           cublasLtMatmulPreferenceAttributes_t a, const void *v, size_t n) {
    struct preference *q = (struct preference *)p;
    if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && n == 8) q->workspace = *(long long *)v;
    else if (a >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && a <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && n == 4)
        q->alignments[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = *(int *)v;
    else return INVALID;
    return 0;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return ended(p); }

/* Whether sizes, types and leading dimensions of a product fit. */
static int fits(const struct operation *o, const struct layout *a, const struct layout *b, const struct layout *c,
                const struct layout *d) {
    const struct layout *all[4] = {a, b, c, d};
    int is_double = o->compute == CUBLAS_COMPUTE_64F;
    for (int k = 0; k < 4; k++)
        if (all[k]->type != (is_double ? CUDA_R_64F : CUDA_R_32F) || all[k]->ld < all[k]->rows || all[k]->rows < 1 ||
            all[k]->columns < 1 || all[k]->batches != d->batches)
            return 0;
    long long m = o->transposes[0] ? a->columns : a->rows, depth = o->transposes[0] ? a->rows : a->columns;
    long long n = o->transposes[1] ? b->rows : b->columns, other = o->transposes[1] ? b->columns : b->rows;
    return o->scale == d->type && depth == other && d->rows == m && d->columns == n && c->rows == m && c->columns == n;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t h, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t p, int asked,
    cublasLtMatmulHeuristicResult_t found[], int *count) {
    struct operation *operation = (struct operation *)o;
    struct preference *q = (struct preference *)p;
    struct algorithm made_one = {4711, q->alignments[0], cublas_workspace};
    cublas_searches++;
    *count = 0;
    if (cublas_status_of_search) return (cublasStatus_t)cublas_status_of_search;
    if (asked < 1 || !h || !fits(operation, (void *)a, (void *)b, (void *)c, (void *)d)) return INVALID;
    for (int k = 0; k < 4; k++)
        if (q->alignments[k] != q->alignments[0]) return INVALID;
    if (operation->epilogue == CUBLASLT_EPILOGUE_BIAS && (size_t)operation->bias % q->alignments[0]) return INVALID;
    if (operation->epilogue == cublas_refused) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (cublas_workspace > q->workspace) return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(found, 0, sizeof *found);
    memcpy(&found->algo, &made_one, sizeof made_one);
    found->workspaceSize = cublas_workspace;
    *count = 1;
    return 0;
}

static double get(const char *p, long long k, int is_double) {
    return is_double ? ((const double *)p)[k] : ((const float *)p)[k];
}

static int compute(void *data) {
    struct product *p = data;
    struct layout *a = &p->layouts[0], *b = &p->layouts[1], *c = &p->layouts[2], *d = &p->layouts[3];
    int is_double = d->type == CUDA_R_64F;
    long long depth = p->operation.transposes[0] ? a->rows : a->columns;
    if (p->workspace_bytes) memset(p->workspace, 0xff, p->workspace_bytes);
    for (int entry = 0; entry < d->batches; entry++)
        for (long long j = 0; j < d->columns; j++)
            for (long long i = 0; i < d->rows; i++) {
                double total = 0;
                for (long long k = 0; k < depth; k++) {
                    long long x = p->operation.transposes[0] ? k + i * a->ld : i + k * a->ld;
                    long long y = p->operation.transposes[1] ? j + k * b->ld : k + j * b->ld;
                    total += get(p->a, entry * a->stride + x, is_double) * get(p->b, entry * b->stride + y, is_double);
                }
                total *= p->alpha;
                if (p->beta) total += p->beta * get(p->c, entry * c->stride + i + j * c->ld, is_double);
                if (p->operation.epilogue == CUBLASLT_EPILOGUE_BIAS) total += get(p->operation.bias, i, is_double);
                long long at = entry * d->stride + i + j * d->ld;
                if (is_double) ((double *)p->d)[at] = total;
                else ((float *)p->d)[at] = total;
            }
    return 0;
}

/* Whether the memory of a matrix begins where it must, and is long enough. */
static int lies(const void *address, const struct layout *l, const struct algorithm *algorithm) {
    long long last = (l->batches - 1) * l->stride + (l->columns - 1) * l->ld + l->rows;
    return (size_t)address % algorithm->alignment == 0 && last * (l->type == CUDA_R_64F ? 8 : 4) <= stub_room(address);
}

EXPORT cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t h, cublasLtMatmulDesc_t o, const void *alpha, const void *a, cublasLtMatrixLayout_t la,
    const void *b, cublasLtMatrixLayout_t lb, const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *d,
    cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t nbytes, cudaStream_t s) {
    struct product p = {*(struct operation *)o, {*(struct layout *)la, *(struct layout *)lb, *(struct layout *)lc,
                        *(struct layout *)ld}, a, b, c, d, workspace};
    struct algorithm algorithm;
    if (cublas_status_of_product) return (cublasStatus_t)cublas_status_of_product;
    memcpy(&algorithm, algo, sizeof algorithm);
    p.alpha = get(alpha, 0, p.operation.scale == CUDA_R_64F), p.beta = get(beta, 0, p.operation.scale == CUDA_R_64F);
    p.workspace_bytes = nbytes, p.alignment = algorithm.alignment;
    if (!h || algorithm.magic != 4711 || !fits(&p.operation, &p.layouts[0], &p.layouts[1], &p.layouts[2], &p.layouts[3]) ||
        (long long)nbytes < algorithm.workspace || (nbytes && stub_room(workspace) < (long long)nbytes) ||
        (nbytes && (size_t)workspace % 256) ||
        !lies(a, &p.layouts[0], &algorithm) || !lies(b, &p.layouts[1], &algorithm) ||
        (p.beta && !lies(c, &p.layouts[2], &algorithm)) || !lies(d, &p.layouts[3], &algorithm))
        return INVALID;
    if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        ((size_t)p.operation.bias % algorithm.alignment ||
         stub_room(p.operation.bias) < p.layouts[3].rows * (p.layouts[3].type == CUDA_R_64F ? 8 : 4)))
        return INVALID;
    cublas_products++;
    cublas_last = p;
    return stub_put(s, compute, &p, sizeof p) ? 13 : 0;
}
