/* The version, as the build file states it. */
#ifndef LAUNCHER_VERSION_H
#define LAUNCHER_VERSION_H

#ifndef FERRY_VERSION
#error "the build defines FERRY_VERSION"
#endif

#endif
