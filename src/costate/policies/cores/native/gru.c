/* The two loops over time of a gated recurrent unit (Eq. 3.6), forwards and backwards, as calls from inside an XLA program.
 *
 * Under XLA a step of either loop is a dozen small operations, each of which takes longer to start than to do, and products of four streams with a
 * matrix of 128 x 128 that are cut up anew in every step. Here the matrices are put in order once for a whole sequence, and what a step needs stays
 * in the processor's first cache. Everything that is not a loop over time stays with XLA.
 *
 * Vectors are those of the compiler (GCC, Clang), which turns them into whatever the processor has. Buffers are float32 and need no alignment.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#if defined(__AVX512F__)
#define LANES 16
#define WIDE 4 /* vectors in a panel: 4 streams of it and a row of the matrix fit in 32 registers */
#elif defined(__AVX__)
#define LANES 8
#define WIDE 2
#else
#define LANES 4
#define WIDE 2
#endif
/* Loads a vector once, where a compiler would rather read it from memory again for every stream. */
#if defined(__AVX512F__)
#define HOLD(v) __asm__("" : "+v"(v))
#elif defined(__x86_64__)
#define HOLD(v) __asm__("" : "+x"(v))
#else
#define HOLD(v) (void)(v)
#endif
#define STREAMS 4 /* streams that share a row of the matrix while it is in registers */
#define INLINE static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t integers __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));

INLINE vector load(const float* from) {
  vector v;
  memcpy(&v, from, sizeof v);
  return v;
}

INLINE void store(float* to, vector v) { memcpy(to, &v, sizeof v); }

INLINE vector all(float x) { return (vector){0} + x; }

INLINE vector choose(integers mask, vector yes, vector no) { return (vector)(((integers)yes & mask) | ((integers)no & ~mask)); }

/* e^x - 1 with full relative accuracy around 0, where e^x itself has none left. x is at most 88 in size; what is no number stays none.
 *
 * e^x = 2^n e^r with |r| <= log(2) / 2, where eight terms of the series of e^r - 1 leave less than a tenth of the last bit.
 */
INLINE vector exp_minus_1(vector x) {
  const vector round = all(12582912.0f); /* 1.5 * 2^23: what is added to it loses its fraction */
  vector shifted = x * 1.44269504f + round, n = shifted - round;
  vector r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f; /* log(2) in two parts, the first short enough for a product without rounding */
  vector p = all(1.0f / 40320.0f);
  p = p * r + 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r * r + r;
  vector power = (vector)(((bits)shifted - (bits)round + 127) << 23); /* 2^n: n is what the last bits of the sum say */
  return p * power + (power - 1.0f);
}

INLINE vector within(vector x, float bound) {
  x = choose(x > bound, all(bound), x);
  return choose(x < -bound, all(-bound), x);
}

INLINE vector sigmoid(vector x) { return 1.0f / (exp_minus_1(within(-x, 87.0f)) + 2.0f); }

INLINE vector tangent(vector x) {
  vector e = exp_minus_1(within(2.0f * x, 40.0f));
  return e / (e + 2.0f);
}

/* A matrix in the order in which products read it: panels of WIDE vectors of columns, row after row. Element (k, j) is at k * down + j * right. */
static void arrange(const float* matrix, int64_t size, int64_t down, int64_t right, float* panels) {
  for (int64_t start = 0; start < size; start += WIDE * LANES) {
    int64_t width = size - start < WIDE * LANES ? size - start : WIDE * LANES;
    for (int64_t k = 0; k < size; ++k)
      for (int64_t j = 0; j < width; ++j) *panels++ = matrix[k * down + (start + j) * right];
  }
}

/* Numbers that are at s * across + k * along, for stream s and row k of a matrix. */
typedef struct {
  const float* at;
  int64_t across, along;
} factor;

/* sums[s, :] += sum over k of left(s, k) panel[k, :], for some streams and one panel of so many vectors. Both are constants wherever this is used. */
INLINE void add_block(int streams, int vectors, factor left, const float* panel, int64_t count, float* sums, int64_t stride) {
  vector sum[STREAMS][WIDE];
  for (int s = 0; s < streams; ++s)
    for (int v = 0; v < vectors; ++v) sum[s][v] = load(sums + s * stride + v * LANES);
  for (int64_t k = 0; k < count; ++k, panel += vectors * LANES) {
    vector row[WIDE];
    for (int v = 0; v < vectors; ++v) {
      row[v] = load(panel + v * LANES);
      HOLD(row[v]);
    }
    for (int s = 0; s < streams; ++s)
      for (int v = 0; v < vectors; ++v) sum[s][v] += left.at[s * left.across + k * left.along] * row[v];
  }
  for (int s = 0; s < streams; ++s)
    for (int v = 0; v < vectors; ++v) store(sums + s * stride + v * LANES, sum[s][v]);
}

/* The same for any number of streams up to STREAMS. */
INLINE void add_streams(int streams, int vectors, factor left, const float* panel, int64_t count, float* sums, int64_t stride) {
  switch (streams) {
    case 4: add_block(4, vectors, left, panel, count, sums, stride); break;
    case 3: add_block(3, vectors, left, panel, count, sums, stride); break;
    case 2: add_block(2, vectors, left, panel, count, sums, stride); break;
    case 1: add_block(1, vectors, left, panel, count, sums, stride); break;
  }
}

/* The same for all panels of a matrix of so many rows and columns. */
INLINE void add_panels(int streams, factor left, const float* panels, int64_t count, float* sums, int64_t columns) {
  for (int64_t start = 0; start < columns; start += WIDE * LANES) {
    int64_t vectors = (columns - start) / LANES;
    switch (vectors < WIDE ? vectors : WIDE) {
#if WIDE == 4
      case 4: add_streams(streams, 4, left, panels, count, sums + start, columns); break;
      case 3: add_streams(streams, 3, left, panels, count, sums + start, columns); break;
#endif
      case 2: add_streams(streams, 2, left, panels, count, sums + start, columns); break;
      case 1: add_streams(streams, 1, left, panels, count, sums + start, columns); break;
    }
    panels += count * WIDE * LANES;
  }
}

/* sums += rows matrix, for [streams, size] and a square matrix that was arranged. */
static void add_product(const float* rows, const float* panels, float* sums, int64_t streams, int64_t size) {
  for (; streams > 0; streams -= STREAMS, rows += STREAMS * size, sums += STREAMS * size)
    add_panels(streams < STREAMS ? streams : STREAMS, (factor){rows, size, 1}, panels, size, sums, size);
}

static void forget(float* state, const uint8_t* is_first, int64_t streams, int64_t size) {
  for (int64_t s = 0; s < streams; ++s)
    if (is_first[s]) memset(state + s * size, 0, size * sizeof(float));
}

/* r = sig(a_r + h U_r),  z = sig(a_z + h U_z),  n = tanh(a_n + (r h) U_n),  h' = n + z (h - n), with a = W y + b given.
 * What is remembered before a step, h, is written too: learning needs it.
 */
static void read_sequence(const float* const drives[3], const float* panels, const uint8_t* is_first, const float* start, float* gated, float* hiddens,
                          float* previous, float* r, float* z, float* n, int64_t steps, int64_t streams, int64_t size) {
  const int64_t row = streams * size, matrix = size * size;
  for (int64_t t = 0; t < steps; ++t, hiddens += row, previous += row, r += row, z += row, n += row) {
    const float* h = previous;
    memcpy(previous, t == 0 ? start : hiddens - row, row * sizeof(float));
    forget(previous, is_first + t * streams, streams, size);
    memcpy(r, drives[0] + t * row, row * sizeof(float));
    add_product(h, panels, r, streams, size);
    for (int64_t i = 0; i < row; i += LANES) {
      vector gate = sigmoid(load(r + i));
      store(r + i, gate);
      store(gated + i, gate * load(h + i));
    }
    memcpy(z, drives[1] + t * row, row * sizeof(float));
    add_product(h, panels + matrix, z, streams, size);
    memcpy(n, drives[2] + t * row, row * sizeof(float));
    add_product(gated, panels + 2 * matrix, n, streams, size);
    for (int64_t i = 0; i < row; i += LANES) {
      vector keep = sigmoid(load(z + i)), candidate = tangent(load(n + i));
      store(z + i, keep);
      store(n + i, candidate);
      store(hiddens + i, candidate + keep * (load(h + i) - candidate));
    }
  }
}

/* The reverse pass through the same steps: from what a loss asks of every hidden state to what it asks of the gates before their non-linearities.
 * The panels are those of the transposed matrices.
 */
static void retrace_sequence(const float* previous, const float* r, const float* z, const float* n, const float* asked, const float* panels,
                             const uint8_t* is_first, float* delta, float* d_gated, float* d_r, float* d_z, float* d_n, int64_t steps, int64_t streams,
                             int64_t size) {
  const int64_t row = streams * size, matrix = size * size;
  for (int64_t t = steps - 1; t >= 0; --t) {
    const int64_t at = t * row;
    for (int64_t i = 0; i < row; i += LANES) {
      vector d = load(delta + i) + load(asked + at + i), keep = load(z + at + i), candidate = load(n + at + i);
      store(d_z + at + i, d * (load(previous + at + i) - candidate) * keep * (1.0f - keep));
      store(d_n + at + i, d * (1.0f - keep) * (1.0f - candidate * candidate));
      store(delta + i, d * keep);
    }
    memset(d_gated, 0, row * sizeof(float));
    add_product(d_n + at, panels + 2 * matrix, d_gated, streams, size);
    for (int64_t i = 0; i < row; i += LANES) {
      vector d = load(d_gated + i), gate = load(r + at + i);
      store(d_r + at + i, d * load(previous + at + i) * gate * (1.0f - gate));
      store(delta + i, load(delta + i) + d * gate);
    }
    add_product(d_z + at, panels + matrix, delta, streams, size);
    add_product(d_r + at, panels, delta, streams, size);
    forget(delta, is_first + t * streams, streams, size);
  }
}

#define ROWS 96 /* rows whose panel stays in the first cache while all columns of the other factor meet it */

/* Some rows of [rows, width], times those of another array if there is one, in the order in which products read a left factor: STREAMS columns at once.
 * Row by row, because that is how they lie in memory.
 */
static void arrange_left(const float* rows, const float* times, int64_t count, int64_t width, float* to) {
  typedef float columns __attribute__((vector_size(4 * STREAMS)));
  for (int64_t k = 0; k < count; ++k)
    for (int64_t start = 0; start < width; start += STREAMS) {
      columns some, others;
      memcpy(&some, rows + k * width + start, sizeof some);
      if (times != NULL) {
        memcpy(&others, times + k * width + start, sizeof others);
        some *= others;
      }
      memcpy(to + start * count + k * STREAMS, &some, sizeof some);
    }
}

static void arrange_right(const float* rows, int64_t count, int64_t size, float* to) {
  for (int64_t start = 0; start < size; start += WIDE * LANES) {
    const int64_t columns = size - start < WIDE * LANES ? size - start : WIDE * LANES;
    for (int64_t k = 0; k < count; ++k, to += columns) memcpy(to, rows + k * size + start, columns * sizeof(float));
  }
}

/* sums += left^T right of some rows, both arranged. Panel by panel, so that one stays in the first cache. */
static void add_outer(const float* left, const float* right, float* sums, int64_t count, int64_t width, int64_t size) {
  for (int64_t start = 0; start < size; start += WIDE * LANES) {
    const int64_t columns = size - start < WIDE * LANES ? size - start : WIDE * LANES;
    for (int64_t column = 0; column < width; column += STREAMS) {
      factor tile = {left + column * count, 1, STREAMS};
      float* to = sums + column * size + start;
      switch (columns / LANES) {
#if WIDE == 4
        case 4: add_block(STREAMS, 4, tile, right, count, to, size); break;
        case 3: add_block(STREAMS, 3, tile, right, count, to, size); break;
#endif
        case 2: add_block(STREAMS, 2, tile, right, count, to, size); break;
        case 1: add_block(STREAMS, 1, tile, right, count, to, size); break;
      }
    }
    right += count * columns;
  }
}

/* Sums over all rows: of the outer products of features and of previous states with what is asked of each gate, and of that itself. */
static void sum_gradients(const float* features, const float* previous, const float* r, const float* const deltas[3], float* d_W, float* d_U, float* d_b,
                          float* space, int64_t rows, int64_t width, int64_t size) {
  float *read = space, *remembered = read + ROWS * width, *gated = remembered + ROWS * size, *right = gated + ROWS * size;
  memset(d_W, 0, 3 * width * size * sizeof(float));
  memset(d_U, 0, 3 * size * size * sizeof(float));
  memset(d_b, 0, 3 * size * sizeof(float));
  for (int64_t first = 0; first < rows; first += ROWS) {
    const int64_t count = rows - first < ROWS ? rows - first : ROWS;
    arrange_left(features + first * width, NULL, count, width, read);
    arrange_left(previous + first * size, NULL, count, size, remembered);
    arrange_left(previous + first * size, r + first * size, count, size, gated);
    for (int gate = 0; gate < 3; ++gate) {
      const float* delta = deltas[gate] + first * size;
      arrange_right(delta, count, size, right);
      add_outer(read, right, d_W + gate * width * size, count, width, size);
      add_outer(gate == 2 ? gated : remembered, right, d_U + gate * size * size, count, size, size);
      for (int64_t k = 0; k < count; ++k)
        for (int64_t i = 0; i < size; ++i) d_b[gate * size + i] += delta[k * size + i];
    }
  }
}

/* What XLA asks of a function before it calls it. */
static int is_question(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start == NULL || frame->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata* answer = ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
  answer->api_version.major_version = XLA_FFI_API_MAJOR;
  answer->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

static XLA_FFI_Error* refuse(XLA_FFI_CallFrame* frame, const char* message, XLA_FFI_Error_Code code) {
  XLA_FFI_Error_Create_Args error = {0};
  error.struct_size = sizeof error;
  error.message = message;
  error.errc = code;
  return frame->api->XLA_FFI_Error_Create(&error);
}

static void* argument(XLA_FFI_CallFrame* frame, int number) { return ((XLA_FFI_Buffer*)frame->args.args[number])->data; }

static void* result(XLA_FFI_CallFrame* frame, int number) { return ((XLA_FFI_Buffer*)frame->rets.rets[number])->data; }

/* Three matrices in order and room for a step behind them; NULL if there is no memory. */
static float* workspace(const float* matrices, int64_t streams, int64_t size, int64_t down, int64_t right) {
  const int64_t matrix = size * size;
  /* Aligned, because vectors that straddle two lines of the cache take twice as long. */
  float* space = aligned_alloc(64, ((3 * matrix + streams * size) * sizeof(float) + 63) / 64 * 64);
  if (space != NULL)
    for (int gate = 0; gate < 3; ++gate) arrange(matrices + gate * matrix, size, down, right, space + gate * matrix);
  return space;
}

static const char* const NO_MEMORY = "costate: no memory for the matrices of a gated recurrent unit";
static const char* const WRONG_WIDTH = "costate: the loops of a gated recurrent unit need a hidden size that is a multiple of the vectors'";

/* (three drives, matrices, first state, is_first) -> (hiddens, states before each step, r, z, n) */
XLA_FFI_Error* costate_gru_read(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  const int64_t* dims = ((XLA_FFI_Buffer*)frame->args.args[0])->dims;
  const int64_t steps = dims[0], streams = dims[1], size = dims[2];
  if (size % LANES != 0) return refuse(frame, WRONG_WIDTH, XLA_FFI_Error_Code_INVALID_ARGUMENT);
  const float* drives[3] = {argument(frame, 0), argument(frame, 1), argument(frame, 2)};
  float* space = workspace(argument(frame, 3), streams, size, size, 1);
  if (space == NULL) return refuse(frame, NO_MEMORY, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
  read_sequence(drives, space, argument(frame, 5), argument(frame, 4), space + 3 * size * size, result(frame, 0), result(frame, 1), result(frame, 2),
                result(frame, 3), result(frame, 4), steps, streams, size);
  free(space);
  return NULL;
}

/* (previous states, r, z, n, what is asked of the hidden states, matrices, is_first) -> (d_r, d_z, d_n, d of the first state) */
XLA_FFI_Error* costate_gru_retrace(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  const int64_t* dims = ((XLA_FFI_Buffer*)frame->args.args[0])->dims;
  const int64_t steps = dims[0], streams = dims[1], size = dims[2];
  if (size % LANES != 0) return refuse(frame, WRONG_WIDTH, XLA_FFI_Error_Code_INVALID_ARGUMENT);
  float* space = workspace(argument(frame, 5), streams, size, 1, size);
  if (space == NULL) return refuse(frame, NO_MEMORY, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
  float* delta = result(frame, 3);
  memset(delta, 0, streams * size * sizeof(float));
  retrace_sequence(argument(frame, 0), argument(frame, 1), argument(frame, 2), argument(frame, 3), argument(frame, 4), space, argument(frame, 6), delta,
                   space + 3 * size * size, result(frame, 0), result(frame, 1), result(frame, 2), steps, streams, size);
  free(space);
  return NULL;
}

/* (features, previous states, r, d_r, d_z, d_n) -> (d_W, d_U, d_b), summed over steps and streams */
XLA_FFI_Error* costate_gru_gradients(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  const int64_t *read = ((XLA_FFI_Buffer*)frame->args.args[0])->dims, *remembered = ((XLA_FFI_Buffer*)frame->args.args[1])->dims;
  const int64_t rows = read[0] * read[1], width = read[2], size = remembered[2];
  if (size % LANES != 0 || width % STREAMS != 0) return refuse(frame, WRONG_WIDTH, XLA_FFI_Error_Code_INVALID_ARGUMENT);
  const float* deltas[3] = {argument(frame, 3), argument(frame, 4), argument(frame, 5)};
  float* space = aligned_alloc(64, (ROWS * (width + 3 * size) * sizeof(float) + 63) / 64 * 64);
  if (space == NULL) return refuse(frame, NO_MEMORY, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
  sum_gradients(argument(frame, 0), argument(frame, 1), argument(frame, 2), deltas, result(frame, 0), result(frame, 1), result(frame, 2), space, rows, width,
                size);
  free(space);
  return NULL;
}
