/* What is in a memory region: patterns, checksums, bytes. */
#include "agent.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

/* `length` bytes of the region of word 1 at the offset of word 2. */
static uint8_t *range_of(struct session *session, struct request *request, size_t length)
{
	struct ibv_mr *mr = find(session, word(request, 1, "an MR"), KIND_MR)->mr;
	uint64_t offset = word_number(request, 2, "an offset");

	if (offset > mr->length || length > mr->length - offset)
		refuse(ERANGE, "%zu bytes at %lu are outside the %zu of %s", length, offset, mr->length, request->words[1]);
	return (uint8_t *)mr->addr + offset;
}

/* The same with the length of word 3. */
static uint8_t *range(struct session *session, struct request *request, size_t *length)
{
	*length = word_number(request, 3, "a length");
	return range_of(session, request, *length);
}

/* Eight bytes of the pattern, little-endian: splitmix64's output number `index` from `seed`. */
static uint64_t pattern(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + index * 0x9E3779B97F4A7C15u;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static uint8_t pattern_byte(uint64_t seed, size_t i)
{
	return pattern(seed, i / 8) >> (8 * (i % 8));
}

/* fill MR offset length seed */
void do_fill(struct session *session, struct request *request)
{
	size_t length;
	uint8_t *bytes = range(session, request, &length);
	uint64_t seed = word_number(request, 4, "a seed");

	for (size_t i = 0; i < length; i++)
		bytes[i] = pattern_byte(seed, i);
}

/* check MR offset length seed */
void do_check(struct session *session, struct request *request)
{
	size_t length;
	const uint8_t *bytes = range(session, request, &length);
	uint64_t seed = word_number(request, 4, "a seed");

	for (size_t i = 0; i < length; i++)
		if (bytes[i] != pattern_byte(seed, i)) {
			fprintf(request->answer, " same=0 at=%zu want=0x%02x have=0x%02x", i, pattern_byte(seed, i), bytes[i]);
			return;
		}
	fprintf(request->answer, " same=1");
}

/* hash MR offset length */
void do_hash(struct session *session, struct request *request)
{
	size_t length;
	const uint8_t *bytes = range(session, request, &length);

	fprintf(request->answer, " crc32=0x%08lx", crc32_z(0, bytes, length));
}

/* peek MR offset length */
void do_peek(struct session *session, struct request *request)
{
	size_t length;
	const uint8_t *bytes = range(session, request, &length);

	fprintf(request->answer, " hex=");
	for (size_t i = 0; i < length; i++)
		fprintf(request->answer, "%02x", bytes[i]);
}

/* poke MR offset hex */
void do_poke(struct session *session, struct request *request)
{
	const char *hex = word(request, 3, "hexadecimal bytes");
	size_t length = strlen(hex) / 2;
	uint8_t *bytes = range_of(session, request, length);

	if (strlen(hex) % 2 || strspn(hex, "0123456789abcdefABCDEF") != 2 * length)
		refuse(EINVAL, "poke wants an even number of hexadecimal digits");
	for (size_t i = 0; i < length; i++)
		sscanf(hex + 2 * i, "%2hhx", &bytes[i]);
}
