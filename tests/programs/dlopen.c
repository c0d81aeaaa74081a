/* A program that is not linked to the library: loads it, opens a device, closes the library with everything alive, and again. The
 * library's threads run on, and must not find their code gone. */
#include "common.h"

#include <dlfcn.h>

int main(void) {
    for (int round = 0; round < 5; round++) {
        void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        struct ibv_device **(*list)(int *) = (struct ibv_device **(*)(int *))dlsym(library, "ibv_get_device_list");
        struct ibv_context *(*open)(struct ibv_device *) =
            (struct ibv_context * (*)(struct ibv_device *)) dlsym(library, "ibv_open_device");
        CHECK(list && open);
        int count = 0;
        struct ibv_device **devices = list(&count);
        CHECK(devices && count > 0);
        for (int i = 0; i < count; i++)
            if (!strcmp(devices[i]->name, "uroce_lo")) CHECK(open(devices[i]));
        CHECK(!dlclose(library));
        usleep(20000);
    }
    puts("dlopen: ok");
    return 0;
}
