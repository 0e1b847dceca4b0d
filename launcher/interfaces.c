/* getifaddrs has an entry for every address of a name. */
#include "launcher/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static const struct sockaddr_in *ipv4(const struct ifaddrs *entry)
{
    return entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET ? (const struct sockaddr_in *)entry->ifa_addr
                                                                    : NULL;
}

static bool present(const struct ifaddrs *list, const char *name)
{
    while (list && strcmp(list->ifa_name, name) != 0)
        list = list->ifa_next;
    return list != NULL;
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

enum status interfaces_check(const char *name, struct error *err)
{
    struct ifaddrs *list = NULL;
    struct text all = {0};
    char host[64] = "";
    enum status st = STATUS_OK;

    if (getifaddrs(&list))
        return STATUS_OK; /* who cannot look does not refuse */
    if (!present(list, name)) {
        (void)gethostname(host, sizeof host - 1);
        add_all(list, &all);
        st = error_set(err, STATUS_ENVIRONMENT, "communication.interface: %s: no such interface on %s; it has %s", name,
                       host, text_string(&all));
    }
    text_done(&all);
    freeifaddrs(list);
    return st;
}
