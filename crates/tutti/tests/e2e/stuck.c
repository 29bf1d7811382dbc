/*
 * A file system that does not answer: it is mounted at the directory that is named, says hello to the
 * kernel, and then takes requests and never replies. Whoever looks for a file there waits, and no signal
 * wakes him, until this program ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static int hello(int fuse, const struct fuse_in_header *in)
{
    struct {
        struct fuse_out_header header;
        struct fuse_init_out body;
    } out;

    memset(&out, 0, sizeof out);
    out.header.len = sizeof out;
    out.header.unique = in->unique;
    out.body.major = FUSE_KERNEL_VERSION;
    out.body.minor = FUSE_KERNEL_MINOR_VERSION;
    out.body.max_write = 4096;
    return write(fuse, &out, sizeof out) == sizeof out ? 0 : -1;
}

int main(int argc, char **argv)
{
    static char request[1 << 18];
    char options[64];
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (argc != 2 || fuse < 0) {
        perror("/dev/fuse");
        return 1;
    }
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (mount("stuck", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        perror("mount");
        return 1;
    }
    for (;;) {
        const struct fuse_in_header *in = (const void *)request;
        ssize_t length = read(fuse, request, sizeof request);

        if (length < 0 && (errno == EINTR || errno == ENOENT))
            continue;
        if (length < 0)
            return errno == ENODEV ? 0 : 1;
        if (in->opcode == FUSE_INIT && hello(fuse, in) != 0)
            return 1;
    }
}
