/* A request line into its parts. */
#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Cuts `copy`, which holds the text of `line` and outlives the request. */
void parse_request(struct request *request, const char *line, char *copy)
{
	char *rest;

	request->line = line;
	request->word_count = 0;
	request->option_count = 0;
	for (char *part = strtok_r(copy, " \t\r\n", &rest); part; part = strtok_r(NULL, " \t\r\n", &rest)) {
		char **slot;

		if (request->word_count + request->option_count == MAX_WORDS)
			return; /* only a `shell` line is that long, and it reads `line` */
		slot = strchr(part, '=') ? &request->options[request->option_count++]
					 : &request->words[request->word_count++];
		*slot = part;
	}
}

/* The word at `index`, the verb being 0. */
const char *word(const struct request *request, int index, const char *what)
{
	if (index >= request->word_count)
		refuse(EINVAL, "%s wants %s as word %d", request->words[0], what, index);
	return request->words[index];
}

uint64_t word_number(const struct request *request, int index, const char *what)
{
	return parse_number(word(request, index, what), what);
}

/* The value of `key=value`, NULL when it is not there. */
const char *option(const struct request *request, const char *key)
{
	size_t length = strlen(key);

	for (int i = 0; i < request->option_count; i++)
		if (!strncmp(request->options[i], key, length) && request->options[i][length] == '=')
			return request->options[i] + length + 1;
	return NULL;
}

uint64_t option_number(const struct request *request, const char *key, uint64_t fallback)
{
	const char *text = option(request, key);

	return text ? parse_number(text, key) : fallback;
}

const char *needed_option(const struct request *request, const char *key)
{
	const char *text = option(request, key);

	if (!text)
		refuse(EINVAL, "%s wants %s=", request->words[0], key);
	return text;
}

bool has_word(const struct request *request, const char *text)
{
	for (int i = 1; i < request->word_count; i++)
		if (!strcmp(request->words[i], text))
			return true;
	return false;
}

/* Decimal, or hexadecimal after 0x. */
uint64_t parse_number(const char *text, const char *what)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end)
		refuse(EINVAL, "%s is not a number: %s", what, text);
	return value;
}
