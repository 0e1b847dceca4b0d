/* getifaddrs has an entry for every address of a name. */
#include "launcher/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static const struct sockaddr_in *ipv4(const struct ifaddrs *entry)
{
    return entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET ? (const struct sockaddr_in *)entry->ifa_addr
                                                                    : NULL;
}

/* "10.0.0.0/24" as network and mask in host order. */
static bool network(const char *text, uint32_t *ret_network, uint32_t *ret_mask)
{
    char address[INET_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    struct in_addr parsed;
    char *end = NULL;
    long bits;

    if (!slash || (size_t)(slash - text) >= sizeof address || slash[1] < '0' || slash[1] > '9')
        return false;
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = '\0';
    bits = strtol(slash + 1, &end, 10);
    if (*end || bits > 32 || inet_pton(AF_INET, address, &parsed) != 1)
        return false;
    *ret_mask = bits ? UINT32_MAX << (32 - bits) : 0;
    *ret_network = ntohl(parsed.s_addr) & *ret_mask;
    return true;
}

static bool present(const struct ifaddrs *list, const char *wanted)
{
    uint32_t net = 0;
    uint32_t mask = 0;
    bool by_network = network(wanted, &net, &mask);

    for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
        const struct sockaddr_in *address = ipv4(entry);

        if (!strcmp(entry->ifa_name, wanted))
            return true;
        if (by_network && address && (ntohl(address->sin_addr.s_addr) & mask) == net)
            return true;
    }
    return false;
}

/* Each name once, at its first entry, with its first IPv4 address. */
static void add_all(const struct ifaddrs *list, struct text *out)
{
    for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
        const struct ifaddrs *same = list;
        char words[INET_ADDRSTRLEN] = "";

        while (strcmp(same->ifa_name, entry->ifa_name) != 0)
            same = same->ifa_next;
        if (same != entry)
            continue;
        while (same && (strcmp(same->ifa_name, entry->ifa_name) != 0 || !ipv4(same)))
            same = same->ifa_next;
        if (same)
            (void)inet_ntop(AF_INET, &ipv4(same)->sin_addr, words, sizeof words);
        text_add(out, "%s%s%s%s%s", entry != list ? ", " : "", entry->ifa_name, words[0] ? " (" : "", words,
                 words[0] ? ")" : "");
    }
}

void interfaces_list(struct text *out)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list))
        return;
    add_all(list, out);
    freeifaddrs(list);
}

enum status interfaces_check(const char *wanted, struct error *err)
{
    struct ifaddrs *list = NULL;
    struct text all = {0};
    char host[64] = "";
    enum status st = STATUS_OK;

    if (getifaddrs(&list))
        return STATUS_OK; /* who cannot look does not refuse */
    while (*wanted && st == STATUS_OK) {
        size_t length = strcspn(wanted, ",");
        char part[128];

        (void)snprintf(part, sizeof part, "%.*s", (int)(length < sizeof part ? length : sizeof part - 1), wanted);
        if (!present(list, part)) {
            (void)gethostname(host, sizeof host - 1);
            add_all(list, &all);
            st = error_set(err, STATUS_ENVIRONMENT, "communication.interface: %s: no such interface on %s; it has %s",
                           part, host, text_string(&all));
        }
        wanted += length + (wanted[length] == ',');
    }
    text_done(&all);
    freeifaddrs(list);
    return st;
}
