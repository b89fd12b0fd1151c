# server.properties of one node, from the environment, as the image apache/kafka makes it: KAFKA_FOO_BAR=1 becomes foo.bar=1,
# two underscores become one, three become a hyphen. Without any such variable: one node that is broker and controller.
# POSIX only: the image has busybox's awk, the tests run whichever this machine has.

BEGIN {
  for (name in ENVIRON) {
    if (name ~ /^KAFKA_./ && !is_for_the_jvm(name)) {
      print key_of(name) "=" one_line(ENVIRON[name])
      count++
    }
  }
  if (!count) print_the_defaults()
  if (!("KAFKA_LOG_DIRS" in ENVIRON) && !("KAFKA_LOG_DIR" in ENVIRON)) print "log.dirs=/var/lib/kafka/data"
}

function is_for_the_jvm(name) {
  return name ~ /^KAFKA_(VERSION|HEAP_OPTS|OPTS|JMX_OPTS|JMX_HOSTNAME|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|LOG4J_.*|TOOLS_LOG4J_LOGLEVEL)$/
}

function key_of(name,    key) {
  key = tolower(substr(name, length("KAFKA_") + 1))
  gsub(/___/, "-", key)
  gsub(/__/, "\001", key)  # an underscore that stays
  gsub(/_/, ".", key)
  gsub(/\001/, "_", key)
  return key
}

function one_line(value) {
  gsub(/\n/, "\\n", value)
  return value
}

function print_the_defaults() {
  print "node.id=1"
  print "process.roles=broker,controller"
  print "controller.listener.names=CONTROLLER"
  print "controller.quorum.voters=1@localhost:9093"
  print "listeners=PLAINTEXT://:9092,CONTROLLER://:9093"
  print "advertised.listeners=PLAINTEXT://localhost:9092"
  print "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
  print "offsets.topic.replication.factor=1"
  print "transaction.state.log.replication.factor=1"
  print "transaction.state.log.min.isr=1"
  print "share.coordinator.state.topic.replication.factor=1"
  print "share.coordinator.state.topic.min.isr=1"
  print "group.initial.rebalance.delay.ms=0"
}
