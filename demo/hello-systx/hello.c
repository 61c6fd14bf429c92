#include "greet.h"

int main(int argc, char **argv)
{
	return greet(argc > 1 ? argv[1] : "world") == 0 ? 0 : 1;
}
