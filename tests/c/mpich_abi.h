/*
 * What the MPI programs of the suites use of MPICH's ABI (https://www.mpich.org/abi). Intel MPI
 * follows this ABI, and its wheel has no header.
 */
#ifndef MPICH_ABI_H
#define MPICH_ABI_H

#ifdef HAS_MPI_H
#include <mpi.h>
#else

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Info;
typedef int MPI_Op;
typedef int MPI_Request;
typedef int MPI_Win;
typedef long MPI_Aint;

struct mpi_status {
	int count_low;
	int count_high_and_cancelled;
	int MPI_SOURCE;
	int MPI_TAG;
	int MPI_ERROR;
};
typedef struct mpi_status MPI_Status;

#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#define MPI_INFO_NULL ((MPI_Info)0x1c000000)
#define MPI_BYTE ((MPI_Datatype)0x4c00010d)
#define MPI_INT ((MPI_Datatype)0x4c000405)
#define MPI_SUM ((MPI_Op)0x58000003)
#define MPI_ANY_SOURCE (-2)
#define MPI_LOCK_SHARED 235
#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_STATUSES_IGNORE ((MPI_Status *)1)

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm comm, int code);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
double MPI_Wtime(void);

int MPI_Send(const void *, int, MPI_Datatype, int to, int tag, MPI_Comm);
int MPI_Recv(void *, int, MPI_Datatype, int from, int tag, MPI_Comm, MPI_Status *);
int MPI_Isend(const void *, int, MPI_Datatype, int to, int tag, MPI_Comm, MPI_Request *);
int MPI_Irecv(void *, int, MPI_Datatype, int from, int tag, MPI_Comm, MPI_Request *);
int MPI_Waitall(int, MPI_Request *, MPI_Status *);

int MPI_Barrier(MPI_Comm);
int MPI_Bcast(void *, int, MPI_Datatype, int root, MPI_Comm);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int MPI_Alltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);

int MPI_Win_create(void *, MPI_Aint, int unit, MPI_Info, MPI_Comm, MPI_Win *);
int MPI_Win_free(MPI_Win *);
int MPI_Win_fence(int, MPI_Win);
int MPI_Win_lock(int kind, int rank, int, MPI_Win);
int MPI_Win_unlock(int rank, MPI_Win);
int MPI_Win_flush(int rank, MPI_Win);
int MPI_Put(const void *, int, MPI_Datatype, int rank, MPI_Aint, int, MPI_Datatype, MPI_Win);
int MPI_Get(void *, int, MPI_Datatype, int rank, MPI_Aint, int, MPI_Datatype, MPI_Win);

#endif
#endif
