/* A libudev.so.1 that knows no devices and never has news of any.
 *
 * A guest may not open the kernel's uevent socket (policies/container.toml; docs/hardening.md says why), and the real
 * library gives up without it: programs that ask SDL for joysticks, or for everything, would not start. Here every list
 * is empty, and a monitor's descriptor is never readable. Nothing is parsed and nothing is kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int something; /* what every object is: callers only compare it with NULL and give it back */

#define OBJECT(name)                                                                                                   \
    void *name(void);                                                                                                  \
    void *name(void) { return &something; }
#define NOTHING(name)                                                                                                  \
    void *name(void);                                                                                                  \
    void *name(void) { return NULL; }
#define NUMBER(name, value)                                                                                            \
    long long name(void);                                                                                              \
    long long name(void) { return value; }

OBJECT(udev_new) OBJECT(udev_ref) NOTHING(udev_unref) NOTHING(udev_get_userdata)
NUMBER(udev_set_userdata, 0) NUMBER(udev_set_log_fn, 0) NUMBER(udev_set_log_priority, 0) NUMBER(udev_get_log_priority, 0)
NUMBER(udev_util_encode_string, -EINVAL)

NOTHING(udev_list_entry_get_next) NOTHING(udev_list_entry_get_by_name) NOTHING(udev_list_entry_get_name)
NOTHING(udev_list_entry_get_value)

OBJECT(udev_enumerate_new) OBJECT(udev_enumerate_ref) NOTHING(udev_enumerate_unref) OBJECT(udev_enumerate_get_udev)
NUMBER(udev_enumerate_add_match_is_initialized, 0) NUMBER(udev_enumerate_add_match_parent, 0)
NUMBER(udev_enumerate_add_match_property, 0) NUMBER(udev_enumerate_add_match_subsystem, 0)
NUMBER(udev_enumerate_add_match_sysattr, 0) NUMBER(udev_enumerate_add_match_sysname, 0)
NUMBER(udev_enumerate_add_match_tag, 0) NUMBER(udev_enumerate_add_nomatch_subsystem, 0)
NUMBER(udev_enumerate_add_nomatch_sysattr, 0) NUMBER(udev_enumerate_add_syspath, 0)
NUMBER(udev_enumerate_scan_devices, 0) NUMBER(udev_enumerate_scan_subsystems, 0)
NOTHING(udev_enumerate_get_list_entry)

/* A monitor is its descriptor, plus one so that it is not NULL. */
void *udev_monitor_new_from_netlink(void);
void *udev_monitor_new_from_netlink(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd < 0 ? NULL : (void *)(intptr_t)(fd + 1);
}

int udev_monitor_get_fd(void *monitor);
int udev_monitor_get_fd(void *monitor) { return (int)(intptr_t)monitor - 1; }

void *udev_monitor_ref(void *monitor);
void *udev_monitor_ref(void *monitor) { return monitor; }

void *udev_monitor_unref(void *monitor);
void *udev_monitor_unref(void *monitor)
{
    if (monitor)
        close(udev_monitor_get_fd(monitor));
    return NULL;
}

OBJECT(udev_monitor_get_udev) NOTHING(udev_monitor_receive_device)
NUMBER(udev_monitor_enable_receiving, 0) NUMBER(udev_monitor_filter_add_match_subsystem_devtype, 0)
NUMBER(udev_monitor_filter_add_match_tag, 0) NUMBER(udev_monitor_filter_remove, 0)
NUMBER(udev_monitor_filter_update, 0) NUMBER(udev_monitor_set_receive_buffer_size, 0)

OBJECT(udev_queue_new) OBJECT(udev_queue_ref) NOTHING(udev_queue_unref) OBJECT(udev_queue_get_udev)
NOTHING(udev_queue_get_queued_list_entry)
NUMBER(udev_queue_flush, 0) NUMBER(udev_queue_get_fd, -ENOSYS) NUMBER(udev_queue_get_kernel_seqnum, 0)
NUMBER(udev_queue_get_queue_is_empty, 1) NUMBER(udev_queue_get_seqnum_is_finished, 1)
NUMBER(udev_queue_get_seqnum_sequence_is_finished, 1) NUMBER(udev_queue_get_udev_is_active, 0)
NUMBER(udev_queue_get_udev_seqnum, 0)

OBJECT(udev_hwdb_new) OBJECT(udev_hwdb_ref) NOTHING(udev_hwdb_unref) NOTHING(udev_hwdb_get_properties_list_entry)

NOTHING(udev_device_new_from_device_id) NOTHING(udev_device_new_from_devnum) NOTHING(udev_device_new_from_environment)
NOTHING(udev_device_new_from_subsystem_sysname) NOTHING(udev_device_new_from_syspath)
NOTHING(udev_device_ref) NOTHING(udev_device_unref) NOTHING(udev_device_get_udev)
NOTHING(udev_device_get_action) NOTHING(udev_device_get_current_tags_list_entry)
NOTHING(udev_device_get_devlinks_list_entry) NOTHING(udev_device_get_devnode) NOTHING(udev_device_get_devpath)
NOTHING(udev_device_get_devtype) NOTHING(udev_device_get_driver) NOTHING(udev_device_get_parent)
NOTHING(udev_device_get_parent_with_subsystem_devtype) NOTHING(udev_device_get_properties_list_entry)
NOTHING(udev_device_get_property_value) NOTHING(udev_device_get_subsystem)
NOTHING(udev_device_get_sysattr_list_entry) NOTHING(udev_device_get_sysattr_value) NOTHING(udev_device_get_sysname)
NOTHING(udev_device_get_sysnum) NOTHING(udev_device_get_syspath) NOTHING(udev_device_get_tags_list_entry)
NUMBER(udev_device_get_devnum, 0) NUMBER(udev_device_get_is_initialized, 0) NUMBER(udev_device_get_seqnum, 0)
NUMBER(udev_device_get_usec_since_initialized, 0) NUMBER(udev_device_has_current_tag, 0)
NUMBER(udev_device_has_tag, 0) NUMBER(udev_device_set_sysattr_value, -ENOSYS)
