/* Processes pass messages of 64 bytes and of 1 MiB around; the first one compares each byte. */
#include <mpi.h>
#include <stdio.h>

static unsigned char bytes[1 << 20];

static int is_wrong(int turn, int len)
{
    for (int i = 0; i < len; i++)
        if (bytes[i] != (unsigned char)(i * 7 + turn))
            return 1;
    return 0;
}

int main(int count, char **words)
{
    int rank, size, wrong = 0;

    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < 50; turn++) {
        int len = turn % 2 ? (int)sizeof bytes : 64;

        if (rank == 0) {
            for (int i = 0; i < len; i++)
                bytes[i] = (unsigned char)(i * 7 + turn);
            MPI_Send(bytes, len, MPI_BYTE, 1, turn, MPI_COMM_WORLD);
        }
        MPI_Recv(bytes, len, MPI_BYTE, (rank + size - 1) % size, turn, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        wrong += is_wrong(turn, len);
        if (rank != 0)
            MPI_Send(bytes, len, MPI_BYTE, (rank + 1) % size, turn, MPI_COMM_WORLD);
    }
    if (rank == 0)
        puts(wrong ? "wrong" : "done");
    MPI_Finalize();
    return wrong != 0;
}
