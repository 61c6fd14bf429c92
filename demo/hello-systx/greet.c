#include "greet.h"

#include <stdio.h>

int greet(const char *whom)
{
	return printf("Hello, %s!\n", whom) < 0 || fflush(stdout) != 0 ? -1 : 0;
}
