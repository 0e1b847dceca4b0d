/* The stand-in for libcudart is as strict as a device. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/standin.h"

START_TEST(a_copy_comes_back)
{
    cudaStream_t stream;
    unsigned char *device;
    unsigned char *host;

    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaMalloc((void **)&device, 1000), cudaSuccess);
    ck_assert_int_eq(cudaMallocHost((void **)&host, 2000), cudaSuccess);
    for (int k = 0; k < 1000; k++)
        host[k] = (unsigned char)(3 * k);
    ck_assert_int_eq(cudaMemcpyAsync(device, host, 1000, cudaMemcpyHostToDevice, stream), cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(host + 1000, device, 1000, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    ck_assert_mem_eq(host, host + 1000, 1000);
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
    ck_assert_int_eq(cudaFreeHost(host), cudaSuccess);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("standin_cudart");
    TCase *memory = tcase_create("memory");
    SRunner *runner;
    int failed;

    tcase_add_test(memory, a_copy_comes_back);
    suite_add_tcase(suite, memory);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
