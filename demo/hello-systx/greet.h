/* Greeting somebody. */
#ifndef GREET_H
#define GREET_H

/* Writes "Hello, WHOM!" and a line end to standard output. Returns 0, or -1 if that failed. */
int greet(const char *whom);

#endif
