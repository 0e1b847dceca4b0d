/* Prints what is generated from the table of keys: `topology-reference markdown` or `topology-reference schema`. */
#include <stdio.h>
#include <string.h>

#include "topology/topology.h"

int main(int argc, char **argv)
{
    struct text text = {0};
    int code = 1;

    if (argc == 2 && !strcmp(argv[1], "markdown"))
        topology_reference(&text);
    else if (argc == 2 && !strcmp(argv[1], "schema"))
        topology_schema(&text);
    else
        (void)fprintf(stderr, "usage: topology-reference markdown|schema\n");
    if (text.length && !text.failed && fwrite(text.bytes, 1, text.length, stdout) == text.length && !fflush(stdout))
        code = 0;
    text_done(&text);
    return code;
}
